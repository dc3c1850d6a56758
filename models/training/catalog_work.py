"""Hand-made tools, part 2: files, code, data, work, support, knowledge, health. Form: catalog_home.py."""

TEXT = """
read_file/open_file/cat/view_file | Read a file/Return the content of a file
- path/file/file_path/filename path! Path of the file/File to read
> Read {path}.
> Show me the file {path}
> What's in {path}?
> Open {path} please
> Print the content of {path}.
> What does the file {path} contain?
> cat {path}
> Display {path}.
> I want to see {path}
> Let me look at {path}.
= lines:int
< The file has {lines} lines.

write_file/save_file/create_file | Write text to a file/Create a file with content
- path/file/file_path/filename path! Where to write/Path of the file
- content/text/data text! What to write/Content of the file
> Write "{content}" to {path}.
> Create the file {path} with the content "{content}"
> Save this to {path}: {content}
> Put the text "{content}" into {path}
> Make a file {path} that says "{content}"
> Write {path} with this text: {content}
> Store "{content}" in the file {path}.
= bytes:int
< I wrote {bytes} bytes to {path}.

delete_file/remove_file/rm/unlink | Delete a file/Remove a file
- path/file/file_path/filename path! Path of the file
> Delete {path}.
> Remove the file {path} please
> rm {path}
> I don't need {path} any more, delete it.
= status:state
< {path}: {status}.

move_file/rename_file/mv | Move or rename a file/Move a file
- source/src/from/old_path path! Current path
- destination/dst/to/new_path path! New path
> Move {source} to {destination}.
> Rename {source} to {destination}
> mv {source} {destination}
= status:state
< {source} to {destination}: {status}.

copy_file/cp/duplicate_file | Copy a file/Make a copy of a file
- source/src/from path! File to copy
- destination/dst/to path! Where to copy it
- overwrite/force ? Replace an existing file
> Copy {source} to {destination}.
> Make a copy of {source} at {destination}.
> Copy {source} to {destination} and overwrite it if it exists.; overwrite=true
= bytes:int
< {bytes} bytes were copied.

list_directory/list_files/ls/list_dir | List the files of a directory/List a folder
- path/directory/dir/folder path! Directory to list
- recursive/all ? Whether to descend
> List the files in {path}.
> What files are in {path}?
> ls {path}
> Show everything under {path}, recursively.; recursive=true
> What's in the folder {path}?
> Which files are there in {path}?
> dir {path}
> Look into {path}
= count:count
< There are {count} files in {path}.

search_files/grep/find_in_files/search_code | Search files for a text/Find a pattern in files
- pattern/query/text/needle phrase! What to search for
- path/directory/dir path Where to search
> Search for "{pattern}" in {path}.
> Find all files that contain {pattern}.
> grep "{pattern}" {path}
> Where is "{pattern}" used?
= matches:count file:file
< There are {matches} matches, the first one in {file}.

run_command/execute/shell/bash | Run a shell command/Execute a command line
- command/cmd/line path! The command to run
- timeout/seconds/time_limit minutes Time limit in seconds
> Run {command}.
> Execute `{command}`
> Run `{command}` with a timeout of {timeout} seconds.
> Please execute the command {command}
> Can you run {command} for me?
> Start {command}
> Execute {command} please
= exit_code:small
< The command ended with exit code {exit_code}.

git_commit/commit/create_commit | Commit changes/Create a git commit
- message/text/msg text! Commit message
- branch/on branch Branch name
> Commit with the message "{message}"
> Commit everything: {message}
> Commit to {branch} with the message "{message}"
= hash:id
< Committed as {hash}.

create_branch/git_branch/new_branch | Create a git branch/Start a branch
- name/branch/branch_name branch! Name of the branch
- from/base/source branch Branch to start from
> Create a branch called {name}.
> New branch {name} from {from}
> Make a branch {name} based on {from}.
= hash:id
< The branch {name} starts at {hash}.

create_issue/open_issue/new_issue/file_bug | Open an issue/Create an issue in the tracker
- title/summary/name title! Title of the issue
- labels/tags [word] Labels to set
- assignee/owner/assigned_to first Who works on it
> Open an issue titled "{title}".
> Create an issue "{title}" with the labels {labels}.
> File a bug: {title}, assign it to {assignee}
> New issue {title}, labels {labels}, assignee {assignee}
= number:int
< I opened issue {number}.

close_issue/resolve_issue/issue_close | Close an issue/Mark an issue as done
- number/issue/issue_number int! Number of the issue
- comment/reason/note text Closing comment
> Close issue {number}.
> Close #{number} with the comment "{comment}"
> Issue {number} is done, please close it.
= status:state
< Issue {number}: {status}.

deploy/deploy_service/release/start_deployment | Deploy a service/Roll out a version
- service/app/application/name word! Service to deploy
- version/tag/release version! Version to deploy
- environment/env/target (staging,production,test) Where to deploy
> Deploy {service} version {version}.
> Deploy version {version} of {service} to {environment}.
> Roll out {service} {version} to {environment} please
> Release {service} {version}
= deployment_id:id
< The deployment {deployment_id} has started.

restart_service/service_restart/reboot/restart | Restart a service/Restart a server
- service/name/server word! Service name
- force/hard ? Do not wait for open requests
> Restart {service}.
> Please restart the {service} service
> Force a restart of {service}.; force=true
> Reboot {service} now
= status:state
< {service}: {status}.

check_status/service_status/health_check/get_status | Get the status of a service/Check whether a service runs
- service/name/server/host word! Service name
> Is {service} up?
> What's the status of {service}?
> Check {service}
> How is the {service} service doing?
> Does {service} run?
> Is something wrong with {service}?
> Tell me how {service} is.
= status:state uptime_hours:int
< {service} is {status}. It has been up for {uptime_hours} hours.

ping_host/ping/check_host | Ping a host/Check whether a host answers
- host/ip/address ip! Host or IP address
- count/times small Number of packets
> Ping {host}.
> Ping {host} {count} times
> Is {host} reachable?
= ms:int
< {host} answered in {ms} ms.

query_database/run_query/sql/db_query | Run a database query/Query a table
- table/from/table_name word! Table name
- columns/fields/select [word] Columns to return
- limit/max_rows/top count Maximum number of rows
> Show {limit} rows of the table {table}.
> Select {columns} from {table}.
> Get {columns} from {table}, at most {limit} rows.
> Query the {table} table
= rows:count
< The query returned {rows} rows.

create_user/add_user/new_user/register_user | Create a user account/Register a user
- username/user/login/name user! Login name
- email/mail/email_address email! Email address
- role/group/level (admin,editor,viewer) Role of the user
- active/enabled ? Whether the account is active
> Create a user {username} with the email {email}.
> Add {username} ({email}) as {role}.
> Register {username}, {email}, role {role}
> New inactive user {username}, email {email}; active=false
= user_id:id
< The user {username} was created with id {user_id}.

reset_password/password_reset/new_password | Reset the password of a user/Send a password reset
- username/user/login user! Login name
> Reset the password of {username}.
> {username} forgot the password, please reset it.
> Password reset for {username}
= status:state
< Password reset for {username}: {status}.

grant_access/give_access/share/add_permission | Grant a user access to a resource/Share a document with someone
- user/person/with/username email! Who gets access
- resource/document/file/item path! What to share
- level/permission/role (read,write,admin) Kind of access
> Give {user} {level} access to {resource}.
> Share {resource} with {user}.
> Grant {user} {level} permission on {resource}
= status:state
< Access for {user}: {status}.

create_ticket/open_ticket/new_ticket/support_ticket | Open a support ticket/Create a ticket
- customer/customer_name/client person! Name of the customer
- subject/title/summary title! Subject of the ticket
- priority/urgency (low,medium,high,urgent) Priority
> Open a ticket for {customer}: {subject}
> Create a {priority} priority ticket for {customer} with the subject "{subject}".
> New ticket, customer {customer}, subject {subject}, priority {priority}
> {customer} has a problem: {subject}. Open a ticket.
> Please file a {priority} ticket for {customer}: {subject}
= ticket_id:id
< I opened ticket {ticket_id}.

get_order/order_status/find_order/lookup_order | Look up an order/Get the status of an order
- order_id/order/number/id id! Order number
> What's the status of order {order_id}?
> Look up order {order_id}.
> Where is order {order_id}?
> Check my order {order_id}
> I ordered something, number {order_id}. What happened to it?
> Has order {order_id} shipped?
> Any news on {order_id}?
= status:state total:price
< Order {order_id} is {status}. The total is {total}.

refund_order/refund/issue_refund | Refund an order/Give money back
- order_id/order/id id! Order number
- amount/sum price Amount to refund
- reason/note/comment phrase Reason
> Refund order {order_id}.
> Refund {amount} for order {order_id} because of {reason}.
> Give back {amount} on order {order_id}
= refund_id:id
< The refund {refund_id} is on its way.

create_invoice/new_invoice/invoice/bill_customer | Create an invoice/Bill a customer
- customer/client/bill_to company! Who pays
- items/lines/positions [{name:thing,quantity:small}] Lines of the invoice
- due_date/due/pay_by iso Due date
> Create an invoice for {customer} with {items}.
> Bill {customer} for {items}, due {due_date}.
> Invoice {customer}: {items}
= invoice_id:id total:price
< Invoice {invoice_id} comes to {total}.

add_employee/hire/create_employee/new_employee | Add an employee/Create an employee record
- name/full_name/employee person! Name of the employee
- department/team/unit (sales,engineering,support,finance,design) Department
- start_date/starts/first_day iso First day
- salary/pay int Yearly salary
> Add {name} to {department}, starting {start_date}.
> New employee {name} in {department} with a salary of {salary}.
> {name} joins {department} on {start_date} with salary {salary}
= employee_id:id
< {name} has the employee id {employee_id}.

request_leave/book_vacation/time_off/vacation | Request time off/Book vacation days
- start/from/start_date iso! First day
- end/to/end_date/until iso! Last day
- reason/note/comment phrase Reason
> I want to take time off from {start} to {end}.
> Book vacation from {start} until {end}.
> Request leave {start} to {end}, reason: {reason}
= status:state
< Your leave: {status}.

schedule_meeting/arrange_meeting/book_meeting/invite | Schedule a meeting with people/Arrange a meeting
- participants/people/attendees/with [first]! Names of the participants
- topic/subject/title/about phrase! What it is about
- date/day date! Day of the meeting
- time/at/start time Start time
> Schedule a meeting with {participants} about {topic} on {date}.
> Arrange a meeting about {topic} with {participants} on {date} at {time}.
> Meeting with {participants}, {date}, {time}, topic {topic}
> I need to meet {participants} on {date} to talk about {topic}.
> Get {participants} together on {date} at {time}, topic: {topic}
= room:phrase meeting_id:id
< The meeting {meeting_id} is in the {room}.

create_task/add_task/new_task/todo_add | Create a task/Add a to-do
- title/name/task/text text! What to do
- due_date/due/deadline iso When it is due
- priority/importance (low,normal,high) Priority
- tags/labels [word] Tags
> Add a task: {title}
> Create a task "{title}" due {due_date}.
> New {priority} priority task "{title}" due {due_date}
> To-do: "{title}" with the tags {tags}
> I still have to do this: {title}
> Put "{title}" on my to-do list.
> Task: {title}, due {due_date}
= task_id:id
< The task {task_id} was added.

complete_task/finish_task/mark_done/task_done | Mark a task as done/Complete a task
- task_id/id/task id! Id of the task
> Mark {task_id} as done.
> I finished task {task_id}.
> Complete {task_id} please
= status:state
< Task {task_id}: {status}.

web_search/search/search_web/internet_search | Search the web/Search the internet for information
- query/q/search_term/text phrase! What to search for
- max_results/limit/num_results/count small Number of results
> Search the web for {query}.
> Look up "{query}" online.
> Find {max_results} results about {query}.
> Google {query}
> What can you find about {query} on the internet?
> search {query}
> Find out something about {query}.
> Search for {query}
> Is there anything new about {query}?
> I want to know more about {query}.
> Look for {query} on the web
> Can you research {query}?
= title:title url:url
< The best result is {title} at {url}.

fetch_url/open_url/get_page/browse | Fetch a web page/Download a page
- url/address/link/page url! Address of the page
> Open {url}.
> Fetch {url}
> What does {url} say?
> Get the page {url} for me.
= title:title
< The page is called {title}.

translate/translate_text/translation | Translate a text/Translate into another language
- text/content/input text! Text to translate
- target/to/language/target_language language! Target language
- source/from/source_language language Source language
> Translate "{text}" to {target}.
> Translate "{text}" from {source} to {target}
> How do you say "{text}" in {target}?
> Translate into {target}: {text}
> What is "{text}" in {target}?
> Say "{text}" in {target}.
> I need this in {target}: {text}
> Put "{text}" into {target} please
= translation:text
< In {target}: {translation}

calculate/calculator/compute/evaluate | Evaluate an arithmetic expression/Calculator
- expression/expr/formula/input expr! Expression to evaluate
> Calculate {expression}.
> What is {expression}?
> Compute {expression} with the calculator
> Use the calculator: {expression}
> {expression} = ?
> How much is {expression}?
> Work out {expression}
> What's {expression}?
> I need the result of {expression}.
> Solve {expression}.
= result:num
< The result is {result}.

convert_units/unit_convert/convert | Convert between units/Unit conversion
- value/amount/quantity num! Value to convert
- from_unit/from/source (km,miles,kg,pounds,meters,feet,liters,gallons) Unit of the value
- to_unit/to/target (km,miles,kg,pounds,meters,feet,liters,gallons) Unit wanted
> Convert {value} {from_unit} to {to_unit}.
> How much is {value} {from_unit} in {to_unit}?
> {value} {from_unit} in {to_unit}
> How many {to_unit} are {value} {from_unit}?
> What is {value} {from_unit} in {to_unit}?
= result:num
< {value} {from_unit} is {result} {to_unit}.

define_word/dictionary/define/lookup_word | Look up a word in the dictionary/Define a word
- word/term/text word! Word to look up
- language/lang language Language of the word
> What does {word} mean?
> Define {word}.
> Look up the {language} word {word}.
> Definition of "{word}" please
> What is the meaning of {word}?
> Explain the word {word}.
> meaning of {word}?
= meaning:phrase
< {word} means {meaning}.

find_recipe/recipe_search/get_recipe/recipes | Find a recipe/Search recipes
- dish/name/query/food food! Dish to cook
- servings/people/portions small Number of servings
- vegetarian/meatless ? Only meatless recipes
> Find me a recipe for {dish}.
> How do I cook {dish} for {servings} people?
> A vegetarian recipe for {dish} please; vegetarian=true
> {dish} recipe for {servings}
> I want to cook {dish}.
> What do I need for {dish}?
> How is {dish} made?
= recipe:title minutes:minutes
< {recipe} takes {minutes} minutes.

log_workout/add_workout/track_exercise/workout | Log a workout/Track an exercise
- activity/sport/exercise/type (running,cycling,swimming,walking,yoga) Kind of sport
- minutes/duration/time minutes! Minutes of sport
- distance_km/distance/km num Distance in km
> Log {minutes} minutes of {activity}.
> I did {minutes} minutes of {activity}, {distance_km} km.
> Track my workout: {activity}, {minutes} minutes
= calories:int
< That burned {calories} calories.

book_appointment/doctor_appointment/make_appointment | Book an appointment/Make an appointment with a doctor
- doctor/with/name person! Name of the doctor
- date/day iso! Day of the appointment
- time/at time! Time of the appointment
- patient/for/patient_name person Name of the patient
> Book an appointment with {doctor} on {date} at {time}.
> I need to see {doctor} on {date} at {time}
> Make an appointment for {patient} with {doctor}, {date}, {time}.
> I need an appointment with {doctor} on {date} at {time}.
> When can I see {doctor}? Take {date} at {time}.
= confirmation:id
< Your appointment is confirmed as {confirmation}.

store_note/save_note/add_note/take_note | Save a note/Take a note
- text/content/note text! Text of the note
- folder/notebook/category word Where to put it
> Take a note: {text}
> Save this note: "{text}"
> Note in {folder}: {text}
> Write down "{text}" in my {folder} notebook.
> Remember this for me: {text}
> Write this down: {text}
> Keep a note that {text}
> Jot down: {text}
= note_id:id
< Your note is saved as {note_id}.

save_contact_record/store_address/update_address/set_address | Store the address of a person/Update an address
- name/person/customer person! Name of the person
- address/location/postal {street:address,city:city,country:country}! Postal address
> Store the address of {name}: {address}
> Update the address of {name} to {address}.
> {name} lives here now: {address}. Save it.
= record_id:id
< The address of {name} is stored in record {record_id}.

draw_chart/plot/make_chart/create_chart | Draw a chart/Plot numbers
- values/data/numbers/points [int]! Numbers to plot
- kind/type/chart_type (bar,line,pie) Kind of chart
- title/caption/name title Title of the chart
> Plot {values}.
> Make a {kind} chart of {values}.
> Draw a {kind} chart titled "{title}" with the values {values}
= chart:file
< The chart is in {chart}.

resize_image/scale_image/image_resize | Resize an image/Scale a picture
- file/path/image path! Image file
- width/w int! Width in pixels
- height/h int Height in pixels
> Resize {file} to a width of {width}.
> Scale {file} to {width}x{height}.
> Make {file} {width} pixels wide and {height} pixels high
= output:file
< The result is in {output}.

random_number/roll/random_int/pick_number | Get a random number/Roll a number
- min/low/from small! Smallest number
- max/high/to int! Largest number
> Give me a random number between {min} and {max}.
> Roll a number from {min} to {max}
> Pick a number between {min} and {max} please
= number:int
< The number is {number}.
"""
