"""Words that the generated data is made of: lists by hand, and invented words without end.

Nothing here comes from a corpus. Invented words matter more than the lists: a model that has
seen only listed names learns the list, one that has seen invented names learns to copy.
"""

FIRST = """Anna Ben Carla David Elena Finn Grace Hugo Ines Jonas Kira Leo Maria Nils Olga Paul
Quinn Rosa Sven Tara Uma Victor Wanda Xenia Yusuf Zoe Amir Bianca Cesar Dora Emil Fatima Gustav
Hanna Ivan Julia Karim Lena Marco Nadia Oscar Petra Rafael Sofia Tomas Ursula Vera Walter Yara
Zane Aisha Boris Chloe Diego Eva Felix Greta Hassan Iris Jakub Kofi Lucia Mehmet Nora Omar Priya
Ravi Selma Theo Umar Viola Wei Ximena Yuki Zora Alice Bob Charlie Dan Emma Frank George Henry
Isabel Jack Kate Liam Mia Noah Olivia Peter Rachel Sam Tom Lucy Max Ella James John Mary Linda
Robert Susan Michael Sarah Laura Kevin Maya Arjun Chen Ming Ana Luis Pablo Marta Lars Ingrid""".split()

LAST = """Smith Jones Brown Berg Keller Novak Rossi Silva Costa Meyer Larsen Nielsen Haddad Okafor
Mensah Tanaka Sato Kim Park Nguyen Tran Singh Patel Khan Ali Hassan Ivanov Petrov Kowalski Nowak
Dubois Laurent Moreau Garcia Lopez Torres Ramirez Fernandez Santos Oliveira Lindqvist Holm Virtanen
Schmidt Weber Fischer Wagner Becker Hoffmann Murphy Kelly Walsh Byrne Evans Morgan Price Clarke
Taylor Wilson Walker Young Hall Green Baker Adams Carter Mitchell Turner Parker Collins Reed Cook
Bell Ward Gray Foster Stone Fox Marsh Lane Frost Hart Blake Cole Dean Ford Grant Hunt West""".split()

CITY = """Oslo Rome Lima Paris Berlin Madrid London Tokyo Cairo Delhi Dublin Lisbon Vienna Prague
Warsaw Athens Helsinki Stockholm Copenhagen Zurich Geneva Bern Milan Turin Naples Munich Hamburg
Cologne Lyon Nice Porto Seville Valencia Barcelona Bergen Tampere Riga Vilnius Tallinn Kyiv Odesa
Bucharest Sofia Belgrade Zagreb Ljubljana Budapest Krakow Istanbul Ankara Nairobi Lagos Accra Tunis
Dakar Amman Doha Dubai Mumbai Chennai Kolkata Dhaka Karachi Lahore Bangkok Hanoi Jakarta Manila
Seoul Busan Osaka Kyoto Taipei Shanghai Beijing Sydney Perth Auckland Toronto Montreal Vancouver
Boston Chicago Denver Seattle Austin Dallas Houston Miami Atlanta Phoenix Detroit Portland Havana
Bogota Quito Santiago Brasilia Montevideo Caracas Reykjavik Edinburgh Glasgow Cardiff Leeds Bristol
York Oxford Cambridge Brussels Antwerp Ghent Rotterdam Utrecht Amsterdam Luxembourg Monaco Malta""".split()
CITY += ["New York", "San Francisco", "Los Angeles", "Buenos Aires", "Cape Town", "Hong Kong",
         "Mexico City", "Rio de Janeiro", "San Diego", "Kuala Lumpur", "Tel Aviv", "New Delhi",
         "Sao Paulo", "Las Vegas", "The Hague", "Santa Cruz", "Port Louis", "Den Bosch"]

COUNTRY = """France Spain Italy Germany Poland Norway Sweden Finland Denmark Japan China India Brazil
Chile Peru Canada Mexico Egypt Kenya Ghana Nigeria Turkey Greece Portugal Ireland Iceland Austria
Belgium Netherlands Switzerland Australia Vietnam Thailand Indonesia Morocco Argentina""".split()

NOUN = """account address agent album alarm alert answer app archive area article asset badge bag ball
bank basket battery bed bell bill bin bird board boat book bottle bowl box branch bread bridge brush
bucket budget bug building bus button cabin cable cake camera camp candle car card cart case cat chair
channel chart check circle class clock cloud coat code coin comment company contact contract corner
country course cover crate crew cup customer cycle dashboard database date deal desk device diary
dish doctor document dog door draft drawer dream dress driver drum engine entry error event expense
farm field file filter flag flat flight floor flower folder forest fork form frame friend garden gate
gift glass goal group guest guitar hall hammer harbor hat head hill horse hotel hour house image index
inventory invoice island issue item job journal key kitchen kite label ladder lake lamp language laptop
lawn leaf lesson letter level library license light line link list loan lock log lot lunch machine
magazine map market market mask meal meeting member memo menu message metric mill mirror model module
monitor month mountain movie museum music nail name network node note number office order oven owner
package page paint panel paper parcel park part partner party password path patient payment pen pencil
permit person phone photo piano picture pipe plan plane planet plant plate player playlist pocket
poem point policy pool port post poster pot price printer process product profile project proposal
queue quiz quote rack radio ramp rate recipe record region reminder rent repair report request
reservation review reward ring river road robot role roof room rope route rule sample scale schedule
school score screen script seat section sensor server service session shelf shift ship shirt shoe shop
signal site sketch slot snack song sound spoon sprint stage stamp star station status step stock stone
store storm story street student subject subscription sugar survey switch table tag tank task taxi team
template tent term test text thread ticket tile timer tool topic tower town toy track trade trail train
tray tree trip truck tube tunnel unit user valley van vase vehicle vendor version video village visit
visitor voice vote voucher wall wallet warehouse watch water wave week wheel widget window wire wolf
word workflow worker workshop yard year zone""".split()

ADJ = """red blue green yellow black white brown orange purple silver golden small big large tiny huge
new old fast slow quick quiet loud bright dark cold warm hot fresh dry wet heavy light soft hard sharp
round square flat deep high low long short wide narrow open closed early late first last next final
main spare public private local remote daily weekly monthly annual urgent simple plain clean clear calm
brave kind proud shy lucky happy sad wild rare common empty full hidden lost broken ready busy free
northern southern eastern western central upper lower inner outer digital manual modern ancient""".split()

VERB = """add adjust allocate analyze approve archive assign attach audit backup ban block book borrow
build bump cancel capture charge check classify clean clear clone close collect compare compress compute
configure confirm connect convert copy count create deactivate decode delete deliver deploy detach detect
disable dispatch download draft duplicate edit enable encode enroll estimate evaluate export extend extract
fetch file fill filter find fix flag flush format forward freeze generate get grant group hide import
index inspect install invite issue join launch link list load locate lock log look mark measure merge
migrate mirror monitor mount move mute notify open order pack parse pause pin plan play poll post predict
print process promote publish purge push query queue rank rate read rebuild record redeem refresh refund
register reject release remind remove rename renew repair replace report request reserve reset resize
resolve restart restore resume retrieve return revert review revoke ring rotate route run save scan
schedule score search send set share ship show shuffle sign skip sort split start stop store submit
subscribe suspend swap sync tag test track train transfer translate trim tune unlock unpin update upgrade
upload validate verify view vote wake watch withdraw write zip""".split()

THING = """apples pens chairs books candles lamps cups plates notebooks tickets batteries cables boxes
stamps towels pillows bananas oranges lemons onions carrots potatoes eggs loaves bottles forks spoons
knives shirts socks hats gloves shoes bricks nails screws bolts tiles panels mugs bowls pencils folders
magnets brushes buckets ropes bells kites drums balls coins shells stones flowers cookies muffins""".split()

PLAIN = """the a some any this that our your their every another one""".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTH = """January February March April May June July August September October November
December""".split()
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
COLOR = "red blue green yellow black white brown orange purple silver pink gray teal beige".split()
LANGUAGE = """English German French Spanish Italian Polish Norwegian Swedish Finnish Danish Dutch
Japanese Chinese Korean Hindi Arabic Turkish Greek Portuguese Czech""".split()
CURRENCY = "USD EUR GBP JPY CHF SEK NOK DKK PLN INR CNY AUD CAD BRL MXN KRW CZK HUF".split()
ADVERB = """today tonight tomorrow soon later now already again often never always usually maybe
quickly slowly carefully quietly early late together alone""".split()
FOOD = """pizza pasta soup salad bread rice curry tacos sushi noodles pancakes omelette stew pie
sandwich burger risotto lasagna dumplings chili""".split()

ONSET = """b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sc sh sk sl sm sn
sp st str sw t th tr tw v w wr x y z""".split() + "b c d f g h k l m n p r s t v z".split() * 5 + [""] * 8
VOWEL = "a e i o u".split() * 6 + "ai au ea ee ei ia ie io oa oo ou ue y".split()
CODA = "b ck d f g k l ll m n nd ng nk nt p r rd rk rn rt s sh sk ss st t th v x z".split() + "n r s l t".split() * 4 + [""] * 44

ACCENT = "á à â ä å ã æ ç é è ê ë í ï î ñ ó ò ô ö ø õ ú ü û ý ž š č ř ł ń ś ż ğ ş ß".split()
EXOTIC = """東京 大阪 北京 上海 서울 부산 Москва Київ Αθήνα القاهرة תל दिल्ली กรุงเทพ 🌧️ ☀️ 🎉 👍 ❤️ 🚀 ✓ → ½ ©
Łódź Zürich São Málaga Curaçao Århus Göteborg Kraków Besançon Nîmes Córdoba Reykjavík Žilina İzmir""".split()


def invented(r, syllables=None):
    """A pronounceable word that means nothing, lower case."""
    n = syllables or r.choice((1, 2, 2, 2, 3, 3, 4))
    return "".join(r.choice(ONSET) + r.choice(VOWEL) + r.choice(CODA) for _ in range(n))


def cap(s):
    return s[:1].upper() + s[1:]


def first(r):
    x = r.random()
    if x < 0.55:
        return r.choice(FIRST)
    if x < 0.97:
        return cap(invented(r, r.choice((1, 2, 2, 3))))
    s = cap(invented(r, 2))
    i = r.randrange(len(s))
    return s[:i] + r.choice(ACCENT) + s[i + 1:]


def last(r):
    x = r.random()
    if x < 0.5:
        return r.choice(LAST)
    if x < 0.95:
        return cap(invented(r, r.choice((2, 2, 3)))) + r.choice(("", "", "", "son", "ov", "ez", "ski", "man"))
    return r.choice(("O'", "Mac", "von ", "de ", "Van ")) + r.choice(LAST)


def person(r):
    return first(r) + " " + last(r) if r.random() < 0.75 else first(r)


def city(r):
    x = r.random()
    if x < 0.6:
        return r.choice(CITY)
    if x < 0.9:
        return cap(invented(r, r.choice((2, 2, 3)))) + r.choice(("", "", "", "ville", "burg", "ton", "stad"))
    if x < 0.97:
        return r.choice(("New ", "North ", "Port ", "Saint ", "East ", "Upper ", "Fort ")) + cap(invented(r, 2))
    return r.choice(EXOTIC)


def noun(r):
    return r.choice(NOUN)


def phrase(r):
    """Two or three words that could name a thing: "the blue ladder", "spare parts list"."""
    x = r.random()
    if x < 0.4:
        return r.choice(ADJ) + " " + noun(r)
    if x < 0.6:
        return noun(r) + " " + noun(r)
    if x < 0.8:
        return noun(r)
    if x < 0.9:
        return invented(r) + " " + noun(r)
    return r.choice(ADJ) + " " + invented(r)


def clause(r):
    k = r.randrange(8)
    if k == 0:
        return f"the {phrase(r)} is {r.choice(ADJ)}"
    if k == 1:
        return f"{r.choice(VERB)} the {phrase(r)}"
    if k == 2:
        return f"{first(r)} will {r.choice(VERB)} the {noun(r)} {r.choice(ADVERB)}"
    if k == 3:
        return f"we need {r.randint(2, 90)} {r.choice(THING)} for the {noun(r)}"
    if k == 4:
        return f"please {r.choice(VERB)} {r.choice(PLAIN)} {noun(r)} before {r.choice(DAY)}"
    if k == 5:
        return f"my {noun(r)} and your {phrase(r)} are {r.choice(ADJ)}"
    if k == 6:
        return f"meet {first(r)} at the {noun(r)} in {city(r)}"
    return f"{r.choice(ADVERB)} I saw {r.choice(PLAIN)} {phrase(r)} near the {noun(r)}"


def sentence(r):
    s = clause(r)
    if r.random() < 0.25:
        s += r.choice((" and ", " but ", ", so ", " because ")) + clause(r)
    if r.random() < 0.85:
        s = cap(s)
    return s + r.choice((".", ".", "", "!", "?"))
