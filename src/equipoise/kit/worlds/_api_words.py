"""Words that `api_dialogues` makes interfaces and utterances of."""

from __future__ import annotations

# Things by domain: word and what it is. "club", "coach" and "match" stand for two things each.
THINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "travel": (
        ("hotel", "a hotel where travellers stay overnight"),
        ("flight", "a flight from one airport to another"),
        ("museum", "a museum that visitors can tour"),
        ("ferry", "a ferry that crosses the water"),
        ("coach", "a long-distance bus between cities"),
        ("club", "a nightspot with music and dancing"),
        ("cruise", "a cruise on a passenger ship"),
        ("hostel", "a hostel with beds in dormitories"),
        ("campsite", "a campsite for tents and caravans"),
        ("beach", "a beach for swimming and sun"),
        ("airport", "an airport with its terminals"),
    ),
    "sports": (
        ("team", "a team that plays in a league"),
        ("player", "a player under contract in a squad"),
        ("league", "a league with its table of teams"),
        ("stadium", "a stadium where matches are played"),
        ("coach", "a trainer who prepares athletes"),
        ("club", "an association of athletes and fans"),
        ("match", "a contest between two opponents"),
        ("referee", "a referee who enforces the rules"),
        ("tournament", "a tournament with several rounds"),
        ("race", "a race over a fixed distance"),
        ("record", "a best performance ever measured"),
    ),
    "shopping": (
        ("product", "a product that is for sale"),
        ("seller", "a seller on the marketplace"),
        ("brand", "a brand that makers put on goods"),
        ("order", "an order that a customer placed"),
        ("coupon", "a coupon that lowers the price"),
        ("store", "a store with shelves and staff"),
        ("parcel", "a parcel on its way to a customer"),
        ("warehouse", "a warehouse that keeps stock"),
        ("invoice", "an invoice that is to be paid"),
        ("match", "a stick that is struck to light a fire"),
    ),
}

# What interfaces tell of a thing.
FACTS: dict[str, tuple[str, ...]] = {
    "travel": ("rating", "address", "opening hours", "daily price", "phone number", "capacity"),
    "sports": ("ranking", "founding year", "win rate", "next date", "budget", "fan count"),
    "shopping": ("price", "stock level", "delivery time", "review score", "discount", "weight"),
}

# What interfaces ask for besides identifiers: name, what it is, values.
FILTERS: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "travel": (
        (
            "city",
            "name of a city to look in",
            ("Lisbon", "Oslo", "Kyoto", "Quito", "Perth", "Riga"),
        ),
        (
            "arrival_date",
            "day of arrival",
            ("2025-03-14", "2025-06-02", "2025-09-21", "2025-12-05"),
        ),
        ("guests", "number of people who travel", ("1", "2", "3", "4", "5")),
        ("currency", "currency of prices", ("EUR", "USD", "JPY", "NOK", "AUD")),
    ),
    "sports": (
        ("country", "country where they compete", ("Norway", "Kenya", "Brazil", "Japan", "Canada")),
        ("season", "year of the season", ("2019", "2020", "2021", "2022", "2023")),
        ("discipline", "kind of sport", ("football", "rowing", "handball", "cycling", "judo")),
        ("division", "level of competition", ("first", "second", "third", "junior")),
    ),
    "shopping": (
        ("keyword", "word to search for", ("lamp", "kettle", "jacket", "bicycle", "notebook")),
        ("max_price", "highest price to pay", ("20", "50", "100", "250")),
        ("colour", "colour wanted", ("red", "green", "black", "white", "blue")),
        ("postcode", "postcode of the customer", ("0150", "4051", "7034", "9008", "5003")),
    ),
}

ADJECTIVES = ("Grand", "Silver", "Northern", "Golden", "Quiet", "Royal", "Modern", "Little")

# Paraphrases, by action. Places in braces are filled in.
USER: dict[str, tuple[str, ...]] = {
    "inform_intent_clear": (
        "I would like to know the {fact} of {a_thing}.",
        "Can you find out the {fact} of a certain {thing} for me?",
        "Please tell me the {fact} of {a_thing} I am interested in.",
        "What I need is the {fact} of {a_thing}.",
    ),
    "inform_intent_clear_add": (
        "I would like to know the {fact} of {a_thing}; its {chain} is {value}.",
        "What is the {fact} of the {thing} with the {chain} {value}?",
        "Please look up the {fact} for {chain} {value}, {a_thing}.",
    ),
    "inform_intent_vague": (
        "I have been thinking about {things} lately. Can you help?",
        "I could use some help with {things}.",
        "There is something about {a_thing} I am curious about.",
        "My friend keeps talking about {things}, so I want to look into that.",
    ),
    "inform": (
        "Sure, {values}.",
        "Okay, here it is: {values}.",
        "Certainly! As for that, {values}.",
        "I have it here, {values}, please go on.",
    ),
    "fail_inform": (
        "I am afraid that I do not know the {chain}.",
        "Sorry, I have no idea what the {chain} is.",
        "Hmm, the {chain} is something I cannot find anywhere.",
    ),
    "fail_inform_but": (
        "Well, {values}, but I do not know the {chain}.",
        "I can say that {values}. The {chain} I have no idea about.",
        "So {values}; sorry, I cannot find the {chain} anywhere.",
    ),
    "affirm": (
        "Yes, that is what I want.",
        "That would be great, please proceed.",
        "Right, exactly what I was looking for.",
    ),
    "negate": (
        "No, that is not what I meant.",
        "That does not help me, thank you though.",
        "Not really, I wanted something else.",
    ),
    "user_bye": (
        "Thank you very much, goodbye!",
        "Great, that is all I needed. Bye.",
        "Perfect, thanks a lot for the help.",
    ),
}

SYSTEM: dict[str, tuple[str, ...]] = {
    "request": (
        "To go on, I need {names}.",
        "Could you please tell me {names}?",
        "May I ask for {names}?",
    ),
    "request_choice": (
        "I found {options}. Which one do you mean?",
        "There are several: {options}. Please choose one.",
    ),
    "response": (
        "Here is what I found: {facts}.",
        "According to the result, {facts}.",
        "I looked it up for you: {facts}.",
    ),
    "clarify": (
        "Could you explain in more detail what you need?",
        "I am not sure I understand. What exactly would you like to know?",
    ),
    "suggest": (
        "Would it help if I looked up the {fact} of {a_thing}?",
        "I could find the {fact} of {a_thing}. Is that what you want?",
    ),
    "response_fail": (
        "I am sorry, I have nothing that can do what you ask.",
        "Unfortunately I cannot help with this request.",
    ),
    "system_bye": (
        "You are welcome. Goodbye!",
        "Glad I could help. Have a nice day!",
    ),
}

THOUGHTS: dict[str, str] = {
    "retriever_call": "The user wants something that an interface has to be found for.",
    "retriever_call_chain": "The user does not know a parameter; an interface may supply it.",
    "request": "Parameters are still missing, so the user has to be asked.",
    "call": "All required parameters are there, so the interface can be called.",
    "response": "The result answers what the user asked.",
    "clarify": "No interface scores 0.5 or more, so the user has to say more.",
    "suggest": "The best interface scores between 0.5 and 0.6, so the user has to confirm it.",
    "response_fail": "The user does not want what was suggested, so the request cannot be met.",
    "system_bye": "The user says goodbye.",
}
