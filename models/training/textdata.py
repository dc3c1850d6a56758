"""Conversation without tools: exact replies, small talk, memory, JSON answers, facts far back."""
import json

import kinds
import words as w
from kinds import KIND, OPEN, say

NAME = "Pocket"
SYSTEM = ("You are a helpful assistant.", "You are a helpful assistant.", "Be brief.", "Answer briefly.", "You are {n}, a friendly assistant.",
          "You are an assistant for {c}.", "Use the tools when they help.", "You can call tools. Use them when needed.", "You are {n}. You work for {c}.",
          "Today is {d}.", "You are a careful assistant. Never make up values.", "Help the user. Today is {d}.", "You are the {o} assistant of {c}. Be kind.",
          "Answer the user's question.", "Do what the user asks.", "You help {p} with the daily work.", "{s}", "The user's name is {p}.")


def system(r):
    return r.choice(SYSTEM).format(n=w.first(r), c=KIND["company"](r), d=kinds.date(r), o=w.noun(r), p=w.person(r), s=w.sentence(r))


def blob(r):
    """A string worth copying exactly."""
    k = r.randrange(9)
    if k == 0:
        return w.sentence(r)
    if k == 1:
        return KIND[r.choice(OPEN)](r)
    if k == 2:
        return " ".join(r.choice((w.invented(r), w.noun(r), kinds.ident(r), w.first(r), str(kinds.integer(r)))) for _ in range(r.randint(1, 6)))
    if k == 3:
        return r.choice(("OK", "yes", "no", "done", "ready", "hello", "Hello!", "pong", "ack", "banana", "42", "I understand.", "true", "PASS"))
    if k == 4:
        return w.invented(r).upper() + r.choice(("", "!", "-" + kinds.digits(r, 3)))
    if k == 5:
        return " ".join(r.choice(w.EXOTIC) for _ in range(r.randint(1, 2))) + (" " + w.noun(r) if r.random() < 0.5 else "")
    if k == 6:
        return "".join(r.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789_-./:+*=@%&") for _ in range(r.randint(4, 16)))
    if k == 7:
        return " ".join(w.cap(w.noun(r)) for _ in range(r.randint(2, 4)))
    return f"{w.first(r)} {r.choice(('has', 'sees', 'likes', 'wants'))} {r.randint(2, 99)} {r.choice(w.THING)}."


EXACT = ("Reply with exactly: {}", "Reply with exactly this text: {}", "Say exactly: {}", "Say only: {}", "Respond with exactly: {}", "Repeat after me: {}",
         "Repeat this: {}", "Answer with only this: {}", "Write exactly this and nothing else: {}", "Output the following text: {}", 'Reply with exactly "{}"',
         'Say "{}" and nothing else.', 'Please answer with "{}" only.', 'Repeat the text "{}".', "Echo: {}", "Just say {}", "Copy this text: {}", "Respond with the single line: {}",
         "Reply only with:\n{}", 'Your answer must be "{}".')


def exact(r):
    b = blob(r)
    return r.choice(EXACT).format(b), b


UNKNOWN = ("I'm a very small model and I don't know that.",)
TALK = (
    (("Hello", "Hi", "Hi!", "Hello!", "Hey", "Hey there", "Good morning", "Good evening", "hello there", "hi", "Hello, how can you help me?", "Greetings"), "Hello! How can I help you?"),
    (("How are you?", "How are you doing?", "How's it going?", "how are you", "Are you OK?"), "I'm fine, thank you. How can I help you?"),
    (("Thanks", "Thank you", "Thanks!", "Thank you very much!", "thanks a lot", "Great, thanks", "Perfect, thank you.", "Cool, thanks!"), "You're welcome!"),
    (("Bye", "Goodbye", "See you", "Bye!", "See you later", "Good night"), "Goodbye!"),
    (("Who are you?", "What are you?", "What is your name?", "What's your name?", "Introduce yourself.", "Are you a robot?", "Are you human?"),
     "I'm Pocket, a very small model. I read tool declarations and call tools, but I know nothing about the world."),
    (("What can you do?", "How can you help me?", "What are you good at?", "Help", "help", "What do you do?"),
     "I can call the tools you declare, copy text exactly, do small sums and find facts in what you wrote. I know nothing about the world."),
    (("OK", "ok", "Okay.", "I see.", "Alright", "Fine.", "Got it."), "Is there anything else I can do?"),
    (("Yes", "yes please", "Sure", "Yes."), "What would you like me to do?"),
    (("No", "no thanks", "No, thank you.", "Nothing else."), "All right."),
    (("Nice to meet you", "Pleased to meet you!"), "Nice to meet you too!"),
    (("Sorry", "I'm sorry", "My mistake"), "No problem."),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh"), "Why did the token stop? It reached the end of its turn."),
    (("You are great!", "Good job", "Well done", "Nice work!", "I like you"), "Thank you!"),
    (("test", "Test", "testing", "Is this working?", "Can you hear me?", "Are you there?", "ping"), "Yes, I'm here."),
    (("Can you help me?", "I need help.", "I need your help", "Could you help me with something?", "I have a question.", "Let's start.", "Are you ready?"), "Of course. What should I do?"),
    (("Who made you?", "Where are you from?", "Which model are you?", "What model are you?", "Are you ChatGPT?", "Which company made you?", "How big are you?", "How many parameters do you have?"),
     "I'm Pocket, a very small model that was trained for this project from scratch."),
    (("How old are you?", "Where do you live?", "What is your favorite color?", "What do you like?", "Do you have friends?"), "I'm only a small program that predicts text."),
    (("Do you speak German?", "Do you speak French?", "Can you speak Spanish?", "Which languages do you speak?"), "I only understand simple English."),
    (("I'm bored.", "I'm sad.", "I'm tired.", "I feel lonely.", "I had a bad day.", "I'm hungry."), "I'm sorry to hear that. Is there anything I can do?"),
    (("I'm happy today!", "What a nice day!", "I got the job!", "I love this."), "I'm glad to hear that."),
    (("What's up?", "What are you doing?", "What's new?"), "I'm waiting for your next request."),
    (("Tell me a story.", "Write me a poem.", "Sing a song.", "Write code for me.", "Write an essay."), "I'm a very small model and I can't write that."),
    (("Do you think?", "Are you alive?", "Do you have feelings?", "Do you sleep?"), "I'm only a small program that predicts text."),
)
ASK_WORLD = ("What is the capital of {country}?", "Who wrote {title}?", "Tell me about {country}.", "Why is the sky {color}?", "What is a {noun}?", "Explain {noun} to me.",
             "Write a poem about the {noun}.", "Who is {person}?", "When was {person} born?", "How does a {noun} work?", "What do you think about {noun}s?", "Write a story about {person}.",
             "How tall is {person}?", "How many people live in {city}?", "Who won the {noun} cup in {year}?", "What happened in {year}?", "Give me advice about my {noun}.",
             "What is the meaning of life?", "Who invented the {noun}?", "Recommend a {noun}.", "What's the best {noun} in {city}?", "Write an essay on {noun}s.")


def world(r):
    q = r.choice(ASK_WORLD).format(country=r.choice(w.COUNTRY), title=kinds.title(r), color=r.choice(w.COLOR), noun=w.noun(r),
                                   person=w.person(r), city=w.city(r), year=r.randint(1800, 2025))
    return q, UNKNOWN[0]


def talk(r):
    x = r.random()
    if x < 0.08:
        return w.cap(w.clause(r)) + ".", "I see."
    if x < 0.16:
        word = r.choice((w.noun(r), w.invented(r), r.choice(w.VERB), r.choice(w.THING), w.first(r)))
        return r.choice(("Spell {}.", "How do you spell {}?", 'Spell the word "{}".')).format(word), "-".join(word)
    qs, a = r.choice(TALK)
    q = r.choice(qs)
    if x > 0.75 and q[0].isupper() and not q.lower().startswith(("hello", "hi", "hey", "good", "bye", "see", "greet")):
        q = r.choice(("Hello, ", "Hi! ", "Hello! ", "Hey, ", "Good morning. ", "OK. ", "Hi, ", "So, ", "Tell me, ")) + q
    return q, a


OWN = (("My name is {v}.", "What is my name?", "Your name is {v}.", "person"), ("I live in {v}.", "Where do I live?", "You live in {v}.", "city"),
       ("My favorite color is {v}.", "What is my favorite color?", "Your favorite color is {v}.", "color"),
       ("I'm {v} years old.", "How old am I?", "You are {v} years old.", "count"), ("My dog is called {v}.", "What is my dog called?", "Your dog is called {v}.", "first"),
       ("My email is {v}.", "What's my email address?", "Your email address is {v}.", "email"), ("I work at {v}.", "Where do I work?", "You work at {v}.", "company"),
       ("My phone number is {v}.", "What is my phone number?", "Your phone number is {v}.", "phone"), ("The code word is {v}.", "What is the code word?", "The code word is {v}.", "word"),
       ("My appointment is at {v}.", "When is my appointment?", "Your appointment is at {v}.", "time"), ("My birthday is on {v}.", "When is my birthday?", "Your birthday is on {v}.", "date"),
       ("Remember the number {v}.", "Which number should you remember?", "You asked me to remember {v}.", "int"), ("I bought {v}.", "What did I buy?", "You bought {v}.", "thing"))


def own_fact(r):
    """(statement, reaction, question, answer, value)"""
    s, q, a, k = r.choice(OWN)
    v = say(KIND[k](r))
    return s.format(v=v), r.choice(("I'll remember that.",)), q, a.format(v=v), v


FIELDS = ("name:person", "age:count", "city:city", "email:email", "phone:phone", "date:iso", "time:time", "price:price", "color:color", "company:company",
          "order_id:id", "quantity:small", "country:country", "title:title", "username:user", "year:year", "language:language", "status:state")


def json_task(r):
    """Extraction into JSON with given keys: (user text, JSON text, object)."""
    fs = [f.split(":") for f in r.sample(FIELDS, r.randint(1, 5))]
    vals = {k: KIND[kind](r) for k, kind in fs}
    style = r.randrange(3)
    items = list(vals.items())
    r.shuffle(items)
    if style == 0:
        src = " ".join(f"The {k.replace('_', ' ')} is {say(v)}." for k, v in items)
    elif style == 1:
        src = "; ".join(f"{k.replace('_', ' ')}: {say(v)}" for k, v in items)
    else:
        src = ", ".join(f"{k.replace('_', ' ')} {say(v)}" for k, v in items)
    keys = ", ".join(vals)
    q = r.choice((f"Extract {keys} as JSON: {src}", f"Return a JSON object with the keys {keys}. Text: {src}", f"{src}\nAnswer only with JSON, keys: {keys}.",
                  f"Turn this into JSON with {keys}.\n{src}", f"Give me JSON ({keys}) for: {src}"))
    return q, json.dumps(vals, ensure_ascii=False), vals


def fact(r):
    """(key phrase, sentence, question, value): one checkable fact about an invented thing."""
    k = r.randrange(6)
    kind = r.choice(("id", "word", "city", "int", "color", "person", "phrase", "phone", "iso", "time", "price", "email"))
    v = say(KIND[kind](r))
    if k == 0:
        p, o = w.person(r), r.choice(("code", "badge", "locker", "office", "phone", "ticket", "seat", "address", "birthday", "hobby", "car", "gift"))
        return (o, p), f"The {o} of {p} is {v}.", f"What is the {o} of {p}?", v
    if k == 1:
        ph = r.choice(w.ADJ) + " " + w.noun(r)
        return ph, f"The code for the {ph} is {v}.", f"What is the code for the {ph}?", v
    if k == 2:
        ph = w.invented(r) + " " + w.noun(r)
        return ph, f"The password of the {ph} is {v}.", f"What is the password of the {ph}?", v
    if k == 3:
        c = w.city(r)
        o = r.choice(("office", "warehouse", "shop", "station", "team", "school"))
        return (o, c), f"The contact of the {o} in {c} is {v}.", f"What is the contact of the {o} in {c}?", v
    if k == 4:
        i = kinds.ident(r)
        return i, f"Item {i} is stored as {v}.", f"What is item {i} stored as?", v
    ph = w.noun(r) + " " + w.noun(r)
    return ph, f"Remember: the {ph} is {v}.", f"What is the {ph}?", v


def haystack(r, chars, tail):
    """(text, question, value): a long text holding one asked fact at least `tail` characters from its end."""
    asked = fact(r)
    keys, before, after = {asked[0]}, [], []
    share = r.choice((0.05, 0.2, 0.5, 0.9))
    sep = r.choice((" ", " ", "\n"))

    def line():
        if r.random() < share:
            f = fact(r)
            if f[0] in keys:
                return w.sentence(r)
            keys.add(f[0])
            return f[1]
        return w.sentence(r)
    n = 0
    while n < tail:
        after.append(line())
        n += len(after[-1]) + 1
    while n < chars:
        before.append(line())
        n += len(before[-1]) + 1
    return sep.join(before + [asked[1]] + after), asked[2], asked[3]
