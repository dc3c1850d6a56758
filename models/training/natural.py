"""Requests typed by hand, never generated and never trained on: a plain check of real use.

Each row: tools by their first name in the catalogue (declared as they stand there), what the user
types, and the expected calls; None means an answer without a call. Extra optional arguments count
as wrong, an article in front of a title does not.
"""
import random
import re

import tools

ROWS = (
    ("get_weather", "What's the weather in Oslo tomorrow?", [("get_weather", {"city": "Oslo", "days": 1})]),
    ("get_weather", "is it going to rain in Hamburg", [("get_weather", {"city": "Hamburg"})]),
    ("get_weather", "My sister is in Kyoto. How's the weather over there?", [("get_weather", {"city": "Kyoto"})]),
    ("get_weather,get_time", "What's the time in Sydney right now?", [("get_time", {"city": "Sydney"})]),
    ("get_weather,get_time", "I need the temperature in Reykjavik in fahrenheit", [("get_weather", {"city": "Reykjavik", "unit": "fahrenheit"})]),
    ("get_weather", "Compare the weather in Paris and Berlin.", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Berlin"})]),
    ("get_weather,set_timer", "Hi there, how are you today?", None),
    ("get_weather,set_timer", "Please start a timer, 12 minutes, for the eggs", [("set_timer", {"minutes": 12, "label": "eggs"})]),
    ("set_timer,set_alarm", "Get me up at 6:30 tomorrow morning", [("set_alarm", {"time": "6:30"})]),
    ("set_timer,set_alarm,set_reminder", "Set an alarm for 07:15", [("set_alarm", {"time": "07:15"})]),
    ("send_email,send_message", "Email bob@example.com and say: The meeting is moved to Friday.", [("send_email", {"to": "bob@example.com", "body": "The meeting is moved to Friday."})]),
    ("send_email,send_message", "Text Maria: I'm on my way", [("send_message", {"to": "Maria", "text": "I'm on my way"})]),
    ("send_email", "Thanks for your help!", None),
    ("send_email", "Who was Albert Einstein?", None),
    ("play_music,set_volume", "Play Yesterday by The Beatles", [("play_music", {"song": "Yesterday", "artist": "The Beatles"})]),
    ("play_music,set_volume", "Make it quieter, volume 20", [("set_volume", {"level": 20})]),
    ("convert_currency,calculate", "How much is 250 dollars... I mean 250 USD in EUR?", [("convert_currency", {"amount": 250, "from": "USD", "to": "EUR"})]),
    ("convert_currency,calculate", "Use the calculator for 17 * 23 please", [("calculate", {"expression": "17 * 23"})]),
    ("translate", "Translate \"good morning\" to Spanish", [("translate", {"text": "good morning", "target": "Spanish"})]),
    ("translate,web_search", "Search the web for open source databases", [("web_search", {"query": "open source databases"})]),
    ("web_search", "look up the population of Norway", [("web_search", {"query": "the population of Norway"})]),
    ("read_file,write_file,list_directory", "Show me README.md", [("read_file", {"path": "README.md"})]),
    ("read_file,write_file,list_directory", "What is inside the folder /etc/nginx?", [("list_directory", {"path": "/etc/nginx"})]),
    ("read_file,run_command,search_files", "Run `make test`", [("run_command", {"command": "make test"})]),
    ("read_file,run_command,search_files", "Find \"deprecated\" in src/main.c", [("search_files", {"pattern": "deprecated", "path": "src/main.c"})]),
    ("move_file,copy_file,delete_file", "Rename notes.txt to old-notes.txt", [("move_file", {"source": "notes.txt", "destination": "old-notes.txt"})]),
    ("move_file,copy_file,delete_file", "delete /tmp/a.log and /tmp/b.log", [("delete_file", {"path": "/tmp/a.log"}), ("delete_file", {"path": "/tmp/b.log"})]),
    ("create_issue,close_issue", "Close issue 42 please", [("close_issue", {"number": 42})]),
    ("create_issue,close_issue", "Open an issue called Crash on start", [("create_issue", {"title": "Crash on start"})]),
    ("git_commit,create_branch", "Create a branch named fix-login", [("create_branch", {"name": "fix-login"})]),
    ("deploy,check_status", "Is the payments service healthy?", [("check_status", {"service": "payments"})]),
    ("deploy,check_status", "Deploy billing 2.4.1 to staging", [("deploy", {"service": "billing", "version": "2.4.1", "environment": "staging"})]),
    ("get_order,refund_order", "Where's my order 88123?", [("get_order", {"order_id": "88123"})]),
    ("track_package", "Has my parcel 1Z999AA1 arrived yet?", [("track_package", {"tracking_number": "1Z999AA1"})]),
    ("get_stock_price", "How is AAPL doing today?", [("get_stock_price", {"symbol": "AAPL"})]),
    ("find_recipe,order_food", "I'd like to cook lasagna for 4 people", [("find_recipe", {"dish": "lasagna", "servings": 4})]),
    ("turn_on_light,turn_off_light,set_temperature", "Turn the kitchen light off", [("turn_off_light", {"room": "kitchen"})]),
    ("turn_on_light,turn_off_light,set_temperature", "Set the living room to 21 degrees", [("set_temperature", {"room": "living room", "temperature": 21})]),
    ("add_to_list,add_to_cart", "Put milk, eggs and bread on my shopping list", [("add_to_list", {"items": ["milk", "eggs", "bread"]})]),
    ("book_table", "Table for two at Luigi's on Saturday at 19:30", [("book_table", {"restaurant": "Luigi's", "people": 2, "date": "Saturday", "time": "19:30"})]),
    ("create_event,list_events", "What do I have on Monday?", [("list_events", {"date": "Monday"})]),
    ("create_event,list_events", "Add a dentist appointment on Friday at 15:00", [("create_event", {"title": "dentist appointment", "date": "Friday", "time": "15:00"})]),
    ("search_flights,book_hotel", "I want to fly from Madrid to Rome on 2026-03-14", [("search_flights", {"origin": "Madrid", "destination": "Rome", "date": "2026-03-14"})]),
    ("find_contact,make_call", "Call mom", [("make_call", {"name": "mom"})]),
    ("calculate,get_weather", "Can you tell me a joke?", None),
    ("get_weather", "What is the tallest mountain on earth?", None),
    ("ping_host,restart_service", "please restart nginx", [("restart_service", {"service": "nginx"})]),
    ("query_database", "give me 5 rows from the customers table", [("query_database", {"table": "customers", "limit": 5})]),
    ("store_note", "Write down: call the plumber on Tuesday", [("store_note", {"text": "call the plumber on Tuesday"})]),
    ("define_word", "what does serendipity mean?", [("define_word", {"word": "serendipity"})]),
)


def plain(x):
    """Forgives an article and a final stop, which a person would not call wrong."""
    if isinstance(x, str):
        return re.sub(r"^(a|an|the) ", "", x).rstrip(".")
    if isinstance(x, list):
        return [plain(v) for v in x]
    return {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x


def rows():
    """[(tools, messages, expected calls or None)]"""
    r, by = random.Random(1), {s.names[0]: s for s in tools.catalog()}
    return [([tools.Instance(r, by[n], plain=True).schema for n in names.split(",")], [{"role": "user", "content": text}], want) for names, text, want in ROWS]


def right(want, got):
    if want is None:
        return not got["calls"] and bool(got["content"].strip())
    return [(n, plain(a)) for n, a in want] == [(n, plain(a)) for n, a in got["calls"]]
