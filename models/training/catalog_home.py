"""Hand-made tools, part 1: weather, travel, calendar, messages, home, music, shopping, money.

One block a tool:
    name alternatives | description alternatives          ("/" separates alternatives)
    - parameter alternatives  kind  description alternatives
    > what a user may type, {parameter} filled in        ("; p=v" adds a fixed argument)
    = result fields  name:kind
    < how the result is told
A kind ending in ! is required; `a,b,c` in parentheses is an enum; [kind] is a list; ? is a boolean.
"""

TEXT = """
get_weather/weather/fetch_weather/current_weather/weather_forecast | Get the weather for a city/Current weather in a city/Weather forecast for a place
- city/location/place/city_name city! City name/Name of the city/The city to look up
- days/num_days/forecast_days small Forecast length/Number of days/How many days ahead
- unit/units/temperature_unit (celsius,fahrenheit) Temperature unit/Unit of the answer
> What's the weather in {city}?
> What's the weather like in {city}?
> What is the weather in {city} today?
> How's the weather in {city} right now?
> What's the weather in {city} tomorrow?; days=1
> Will it rain in {city} tomorrow?; days=1
> Weather in {city}?
> weather {city}
> Is it cold in {city}?
> Do I need an umbrella in {city}?
> Do I need a coat in {city} tomorrow?; days=1
> Is it raining in {city}?
> How warm is it in {city}?
> I'm travelling to {city}. What's the weather there?
> Give me the forecast for {city} for the next {days} days.
> What will the weather be in {city} over the next {days} days?
> {days} day forecast for {city} in {unit}
> What's the temperature in {city} in {unit}?
> How hot is it in {city}? Use {unit} please.
> Check the weather in {city} for me, in {unit}.
> Show me the {days}-day weather for {city} in {unit}.
> Should I bring an umbrella to {city}?
> Should I take a jacket when I go to {city} today?
> Is it sunny in {city}?
> What should I wear in {city} today?
> How cold does it get in {city} tomorrow?; days=1
> Is it going to snow in {city} this week?; days=7
> What's it like outside in {city}?
> Tell me about the weather in {city}.
> Any rain in {city}?
> Can we have a picnic in {city} tomorrow?; days=1
> Temperature in {city}?
> Do I need sunglasses in {city}?
> Please check whether it rains in {city}.
> I live in {city}. How is the weather?
> We fly to {city} tomorrow. Will it be warm?; days=1
> Is {city} windy today?
> What's the forecast for {city}?
> Can you tell me the weather for {city} please?
> How many degrees is it in {city}?
= temperature:temp condition:sky
< It is {temperature} degrees and {condition} in {city}.
< In {city} it is {temperature} degrees with {condition}.

get_time/current_time/time_in_city/local_time | Get the current local time in a city/What time it is in a place
- city/timezone/location/place city! City name/City or time zone
> What time is it in {city}?
> What's the time in {city}?
> Time in {city} please
> Tell me the local time in {city}.
> Is it already night in {city}? What time is it there?
> Current time in {city}?
> How late is it in {city}?
> What's the clock in {city}?
> I want to call someone in {city}. What time is it there?
> Do you know what time it is in {city}?
= time:time
< It is {time} in {city}.

search_flights/find_flights/flight_search | Search for flights between two cities/Find flights
- origin/from_city/departure city! City of departure/Where the flight starts
- destination/to_city/arrival city! City of arrival/Where to fly
- date/departure_date/day date Day of departure/Travel date
- passengers/num_passengers/travelers small Number of passengers/How many people
> Find me a flight from {origin} to {destination}.
> Search flights from {origin} to {destination} on {date}.
> I need to fly from {origin} to {destination} on {date} with {passengers} passengers.
> Flights {origin} to {destination}, {date}
> Are there any flights to {destination} from {origin} on {date}?
> Look for flights for {passengers} people from {origin} to {destination}.
> I want to fly from {origin} to {destination} on {date}.
> How do I fly from {origin} to {destination}?
> Cheapest flight from {origin} to {destination}?
> Is there a plane from {origin} to {destination} on {date}?
= flight:id price:price
< The best option is flight {flight} for {price}.
< I found flight {flight}, which costs {price}.

book_hotel/reserve_hotel/hotel_booking | Book a hotel room/Reserve a room in a city
- city/location city! City of the hotel
- check_in/start_date/arrival_date iso! First night/Check-in date
- nights/num_nights small! Number of nights/How many nights
- guests/num_guests small Number of guests
> Book a hotel in {city} from {check_in} for {nights} nights.
> I need a room in {city} for {nights} nights starting {check_in}.
> Reserve a hotel in {city}, check-in {check_in}, {nights} nights, {guests} guests.
> Please book me a hotel in {city} on {check_in} for {nights} nights for {guests} people.
= hotel:company confirmation:id
< Your room at {hotel} is booked. The confirmation number is {confirmation}.
< Done: {hotel}, confirmation {confirmation}.

book_taxi/order_taxi/request_ride/call_cab | Order a taxi/Request a ride
- pickup/from/pickup_address address! Where to be picked up/Start address
- dropoff/to/destination address! Where to go/Destination address
- time/pickup_time time When to be picked up
> Get me a taxi from {pickup} to {dropoff}.
> Order a cab from {pickup} to {dropoff} at {time}.
> I need a ride to {dropoff} from {pickup} at {time}.
> Taxi from {pickup} to {dropoff} please
> I'm at {pickup} and need to get to {dropoff}.
> Please pick me up at {pickup} at {time} and bring me to {dropoff}.
= driver:first minutes:minutes
< {driver} will be there in {minutes} minutes.
< Your driver {driver} arrives in {minutes} minutes.

get_directions/route/directions/plan_route | Get directions between two places/Plan a route
- origin/start/from_place city! Starting point
- destination/end/to_place city! End point
- mode/travel_mode/transport (driving,walking,cycling,transit) Way of travelling
> How do I get from {origin} to {destination}?
> Directions from {origin} to {destination}
> Show me the {mode} route from {origin} to {destination}.
> How do I get to {destination} from {origin} by {mode}?
> Plan a {mode} trip from {origin} to {destination}.
= distance_km:int minutes:minutes
< It is {distance_km} km and takes about {minutes} minutes.

create_event/add_event/calendar_add/schedule_event | Create a calendar event/Add an event to the calendar
- title/name/summary title! Title of the event/Name of the event
- date/day date! Day of the event/Date of the event
- time/start_time/start time Start time
- duration/minutes/duration_minutes minutes Length in minutes
> Add "{title}" to my calendar on {date}.
> Create an event called {title} on {date} at {time}.
> Schedule {title} for {date} at {time} for {duration} minutes.
> Put {title} in my calendar for {date}
> New event: {title}, {date}, {time}
> Can you put "{title}" on my calendar on {date} at {time}?
> Put {title} into my calendar on {date} at {time}.
> I have {title} on {date} at {time}, add it to the calendar.
> Block {duration} minutes on {date} for {title}.
> Note {title} in my calendar for {date} at {time}
> Please plan {title} on {date}
= event_id:id
< I added {title} to your calendar. The event id is {event_id}.
< Done. The event id is {event_id}.

list_events/get_calendar/show_agenda/calendar_events | List calendar events of a day/Show what is on the calendar
- date/day date! The day to show
> What's on my calendar on {date}?
> What do I have planned for {date}?
> Show my agenda for {date}.
> Am I free on {date}?
> List my events for {date}
= count:small first:title
< You have {count} events. The first one is {first}.

delete_event/cancel_event/remove_event | Delete a calendar event by id/Remove an event
- event_id/id/event id! Id of the event
> Delete event {event_id}.
> Cancel the event {event_id} please
> Remove {event_id} from my calendar.
= status:state
< The event {event_id} is now {status}.

set_reminder/create_reminder/add_reminder/remind_me | Set a reminder/Create a reminder
- text/message/task/note text! What to be reminded of/Reminder text
- time/at/when time! Time of the reminder/When to remind
- date/day date Day of the reminder
> Remind me at {time}: {text}
> Set a reminder for {time}: "{text}"
> Remind me at {time} on {date}: {text}
> At {time}, remind me of this: {text}
> Create a reminder "{text}" at {time} on {date}.
> Don't let me forget at {time}: {text}
> Could you remind me at {time} that {text}
> I need a reminder at {time}: {text}
> At {time} on {date} tell me: {text}
= id:id
< The reminder is set for {time}. Its id is {id}.

set_alarm/alarm/create_alarm | Set an alarm clock/Set an alarm
- time/at/alarm_time time! Time of the alarm
- label/name phrase Label of the alarm
> Set an alarm for {time}.
> Wake me up at {time}.
> Alarm at {time} called {label}
> Set an alarm for {time} with the label {label}.
> I have to get up at {time}.
> Ring at {time}
> I need to be awake at {time}, set an alarm please.
> alarm {time}
> Can you wake me at {time}?
= id:id
< Your alarm is set for {time}. Its id is {id}.

set_timer/start_timer/timer | Start a timer/Set a countdown timer
- minutes/duration/duration_minutes minutes! Length in minutes/Minutes to count down
- label/name phrase Name of the timer
> Set a timer for {minutes} minutes.
> Start a {minutes} minute timer.
> Timer {minutes} min please
> Start a {minutes} minute timer called {label}.
> {minutes} minutes timer
> Tell me when {minutes} minutes are over.
> Count down {minutes} minutes.
> Remind me in {minutes} minutes.
> The {label} takes {minutes} minutes, start a timer.
> I need {minutes} minutes on the clock
= ends:time
< The timer ends at {ends}.

send_email/email/mail/compose_email | Send an email/Send a mail to someone
- to/recipient/address/email email! Address of the recipient/Email address
- subject/title title Subject line
- body/text/message/content text! Text of the mail/Message body
> Send an email to {to} saying "{body}"
> Email {to} with the subject "{subject}" and the text "{body}"
> Write a mail to {to}: {body}
> Send a mail to {to}, subject {subject}, body: {body}
> Mail {to} this: "{body}"
> Write to {to} that {body}
> Let {to} know by email that {body}
> Send {to} an email that says "{body}"
> Drop {to} a mail: {body}
> Answer {to} with: {body}
> I need to email {to} about {subject}. Write: {body}
= message_id:id
< The email to {to} was sent. The message id is {message_id}.

send_message/send_sms/text_message/send_text | Send a text message/Send a message to a person
- to/recipient/contact/person person! Who gets the message/Name of the recipient
- text/message/body text! Text of the message
> Text {to}: {text}
> Send {to} a message: "{text}"
> Tell {to}: {text}
> Message {to} saying "{text}"
> Let {to} know: {text}
> Tell {to} that {text}
> Write {to}: {text}
> Send {to} this text: {text}
> Ask {to}: {text}
> Can you text {to} that {text}
> Say to {to}: {text}
= status:state
< Your message to {to}: {status}.

post_message/chat_post/send_to_channel | Post a message to a chat channel/Write into a channel
- channel/room/channel_name word! Channel name
- text/message/content text! What to post
> Post in {channel}: {text}
> Send "{text}" to the {channel} channel.
> Write this in the channel {channel}: "{text}"
= message_id:id
< Posted in {channel}. The message id is {message_id}.

find_contact/get_contact/lookup_contact/contact_search | Find a contact by name/Look up a person in the address book
- name/person/query person! Name of the person
> What's the phone number of {name}?
> Find {name} in my contacts.
> Look up {name}
> Do I have contact details of {name}?
> How can I reach {name}?
> What's {name}'s number?
> Do you have the email of {name}?
> I need to reach {name}.
> Give me the contact of {name}.
= phone:phone email:email
< {name}: phone {phone}, email {email}.

add_contact/create_contact/new_contact/save_contact | Add a person to the contacts/Create a contact
- name/full_name/contact_name person! Name of the person
- phone/phone_number/number phone Phone number
- email/mail/email_address email Email address
> Add {name} to my contacts, phone {phone}.
> Save {name} with the email {email}.
> New contact: {name}, {phone}, {email}
> Create a contact {name} with phone number {phone} and email {email}.
= contact_id:id
< {name} is saved. The contact id is {contact_id}.

make_call/call/phone_call/dial | Call a person/Make a phone call
- name/person/contact/who person! Who to call
> Call {name}.
> Can you call {name} please
> Phone {name}
> I want to talk to {name}, call them.
= status:state
< The call to {name}: {status}.

turn_on_light/light_on/switch_on_light | Turn on a light in a room/Switch a light on
- room/location/name phrase! Room or name of the light
- brightness/level/percent pct Brightness in percent
- color/colour color Color of the light
> Turn on the light in the {room}.
> Lights on in the {room}
> Switch on the {room} light at {brightness} percent.
> Make the {room} light {color}.
> Turn on the light in the {room}, {color}, {brightness}%
> It's dark in the {room}.
> Light up the {room}.
> Can you put the lights on in the {room}?
> Make it bright in the {room}
> Dim the {room} light to {brightness} percent.
= status:state
< The light in the {room}: {status}.

turn_off_light/light_off/switch_off_light | Turn off a light in a room/Switch a light off
- room/location/name phrase! Room or name of the light
> Turn off the light in the {room}.
> Lights off in the {room}
> Switch off the {room} light please
> Make it dark in the {room}.
> Nobody is in the {room}, switch the light off.
> Kill the lights in the {room}
= status:state
< The light in the {room}: {status}.

set_temperature/set_thermostat/thermostat/heat | Set the temperature of a room/Set the thermostat
- room/zone/location phrase! Room to heat
- temperature/degrees/target count! Target temperature
> Set the {room} to {temperature} degrees.
> Make it {temperature} degrees in the {room}.
> Heat the {room} to {temperature}
> Change the thermostat in the {room} to {temperature}.
> It's too cold in the {room}, make it {temperature} degrees.
> I want {temperature} degrees in the {room}.
> {room} to {temperature} degrees please
= current:temp
< The {room} is set to {temperature} degrees. It is {current} degrees now.

lock_door/door_lock/lock | Lock a door/Lock one of the doors
- door/name/which phrase! Name of the door
> Lock the {door}.
> Please lock the {door} door
> Is the {door} locked? If not, lock it.
= status:state
< The {door}: {status}.

play_music/play_song/play/music_play | Play music/Play a song or an artist
- song/title/track title! Title of the song
- artist/by/musician person Name of the artist
- volume/level pct Volume in percent
> Play {song}.
> Play "{song}" by {artist}.
> Put on {song} by {artist} at volume {volume}.
> I want to hear {song}
> Can you play {song} by {artist}?
> Put on the song {song}.
> Start {song} by {artist}
> Let me hear {song} from {artist}.
> I'm in the mood for {song}
> play {song} please
> Could you put on {song}?
= playing:title
< Now playing {playing}.

create_playlist/new_playlist/make_playlist | Create a playlist/Make a new playlist
- name/title title! Name of the playlist
- songs/tracks/titles [title] Titles to put on it
- public/shared ? Whether others can see it
> Create a playlist called {name}.
> Make a playlist "{name}" with {songs}.
> New public playlist {name}; public=true
> Create a private playlist named {name} with the songs {songs}.; public=false
= playlist_id:id
< The playlist {name} is ready. Its id is {playlist_id}.

set_volume/volume/change_volume | Set the volume/Change the loudness
- level/percent/volume pct! Volume in percent
> Set the volume to {level}.
> Volume {level} percent
> Turn the sound to {level}%.
= level:pct
< The volume is {level} percent.

add_to_cart/cart_add/add_item/put_in_cart | Add a product to the shopping cart/Put an item into the cart
- product/item/name/article thing! Product name
- quantity/amount/count/qty count How many
> Add {quantity} {product} to my cart.
> Put {product} in the cart.
> I want to buy {quantity} {product}.
> {quantity} {product} into the cart please
= total:price
< The cart now costs {total}.

add_to_list/shopping_list_add/list_add | Add items to a list/Put things on the shopping list
- list/list_name/name word Name of the list
- items/things/entries [thing]! Items to add
> Add {items} to my shopping list.
> Put {items} on the {list} list.
> I need {items}. Add them to the list {list}.
> Shopping list: {items}
> We are out of {items}.
> Don't forget to buy {items}.
> Put {items} on the shopping list.
= count:count
< The list now has {count} items.

track_package/track_order/package_status/track_parcel | Track a package/Where a parcel is
- tracking_number/number/tracking_id/parcel id! Tracking number
> Where is my package {tracking_number}?
> Track {tracking_number}.
> What's the status of parcel {tracking_number}?
> Has {tracking_number} been delivered yet?
> When does my parcel {tracking_number} arrive?
> My tracking number is {tracking_number}. Where is it?
> I'm waiting for package {tracking_number}.
= status:state location:city
< The package is {status}. It was last seen in {location}.

order_food/food_order/order_meal | Order food from a restaurant/Order a meal
- restaurant/place/from company! Restaurant name
- items/dishes/meals [food]! Dishes to order
- address/deliver_to address Where to deliver
> Order {items} from {restaurant}.
> Get me {items} from {restaurant}, deliver to {address}.
> I'd like {items} from {restaurant} please
= order_id:id minutes:minutes
< Order {order_id} arrives in {minutes} minutes.

book_table/reserve_table/restaurant_booking | Reserve a table in a restaurant/Book a table
- restaurant/place/name company! Restaurant name
- people/guests/party_size small! How many people
- date/day date! Day of the visit
- time/at time! Time of the visit
> Book a table for {people} at {restaurant} on {date} at {time}.
> Reserve a table at {restaurant} for {people} people, {date}, {time}.
> I need a table for {people} on {date} at {time} at {restaurant}.
> We are {people} people and want to eat at {restaurant} on {date} at {time}.
> Get us a table at {restaurant}, {people} people, {date} {time}
= confirmation:id
< Your table at {restaurant} is booked. The confirmation is {confirmation}.

convert_currency/currency_convert/exchange/exchange_rate | Convert an amount between currencies/Currency conversion
- amount/value/sum int! Amount to convert
- from/from_currency/source currency! Source currency code
- to/to_currency/target currency! Target currency code
> Convert {amount} {from} to {to}.
> How much is {amount} {from} in {to}?
> What is {amount} {from} in {to}?
> {amount} {from} to {to}
> Exchange {amount} {from} into {to} please
> What do I get for {amount} {from} in {to}?
> I have {amount} {from}. How many {to} is that?
> Change {amount} {from} to {to}.
> What's {amount} {from} worth in {to}?
= result:price
< {amount} {from} is {result} {to}.

transfer_money/send_money/bank_transfer/pay | Transfer money to someone/Send money
- to/recipient/payee person! Who gets the money
- amount/sum/value price! How much
- currency/curr currency Currency code
- note/reference/message phrase Reference text
> Send {amount} to {to}.
> Transfer {amount} {currency} to {to}.
> Pay {to} {amount} {currency} with the note {note}.
> Wire {amount} to {to}, reference "{note}"
= transaction_id:id
< {amount} was sent to {to}. The transaction id is {transaction_id}.

get_balance/account_balance/balance/check_balance | Get the balance of an account/How much money is in an account
- account/account_id/account_number id! Account number
> What's the balance of account {account}?
> How much money is in {account}?
> Check the balance of {account} please
= balance:price currency:currency
< The balance is {balance} {currency}.

get_stock_price/stock_price/stock_quote/quote | Get the price of a stock/Latest stock quote
- symbol/ticker/stock ticker! Ticker symbol
> What's the stock price of {symbol}?
> How is {symbol} doing?
> Quote for {symbol}
> Get me the current price of {symbol}.
> What does a share of {symbol} cost?
> Price of {symbol}?
> Where does {symbol} stand today?
= price:price
< {symbol} trades at {price}.
"""
