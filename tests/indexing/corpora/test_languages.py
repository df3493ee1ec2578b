"""The languages of texts."""

import pytest

from keystone.indexing.corpora.languages import differ_in_language, guess_language, guess_languages

TEXTS = {
    "English": "The bees of the garden find their flowers by the scent, and that is known to all of us.",
    "German": "Die Bienen finden die Blumen mit dem Duft, und das ist nicht allen von uns bekannt.",
    "French": "Les abeilles trouvent les fleurs par le parfum, et cela est connu dans la région.",
    "Spanish": "Las abejas encuentran las flores por el olor, y eso es conocido en la región.",
    "Italian": "Le api trovano i fiori per il profumo, e questo non è noto a tutti nella regione del nord.",
    "Portuguese": "As abelhas encontram as flores com o cheiro, e não é uma coisa que todos saibam.",
    "Dutch": "De bijen vinden het voedsel met een geur van bloemen, en dat is niet voor iedereen bekend.",
    "Japanese": "ミツバチは匂いで花を見つけます。",
    "Chinese": "蜜蜂通过气味找到花朵。",
    "Korean": "꿀벌은 냄새로 꽃을 찾습니다.",
    "Arabic": "يجد النحل الزهور عن طريق الرائحة",
    "Persian": "زنبورها گل‌ها را با بوی آن‌ها پیدا می‌کنند",
    "Russian": "Пчёлы находят цветы по запаху.",
    "Ukrainian": "Бджоли знаходять квіти за запахом, і це відомо всім.",
    "Greek": "Οι μέλισσες βρίσκουν τα λουλούδια.",
    "Hebrew": "הדבורים מוצאות את הפרחים",
    "Hindi": "मधुमक्खियाँ फूल ढूँढती हैं",
    "Thai": "ผึ้งหาดอกไม้ด้วยกลิ่น",
    "": "zzz 12 34",
}


@pytest.mark.parametrize("language", TEXTS, ids=lambda name: name or "none")
def test_the_language_of_a_text_is_guessed(language: str) -> None:
    assert guess_language(TEXTS[language]) == language


def test_the_languages_of_texts_are_named_by_their_number() -> None:
    english, russian, thai = TEXTS["English"], TEXTS["Russian"], TEXTS["Thai"]
    assert guess_languages([russian, english, english]) == ["English", "Russian"]
    assert guess_languages([english.upper()] * 19 + [thai]) == ["English"]
    assert guess_languages([]) == guess_languages(["", "123"]) == []


ENGLISH = "The river rose by two metres in the night, and the town was flooded. Many houses had to be left."
GERMAN = "Der Fluss stieg in der Nacht um zwei Meter, und die Stadt wurde überflutet. Viele Häuser waren leer."
SENTENCES = {
    "German": "Der Fluss stieg um zwei Meter.",
    "French": "Le fleuve est monté de deux mètres.",
    "Spanish": "El río subió dos metros.",
    "Italian": "Il fiume è salito di due metri.",
    "Polish": "Rzeka podniosła się o dwa metry.",
    "Turkish": "Nehir iki metre yükseldi.",
    "Russian": "Река поднялась на два метра.",
    "Chinese": "河水上涨了两米。",
    "Arabic": "ارتفع النهر مترين.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_in_another_language_than_a_passage_is_found(language: str) -> None:
    assert differ_in_language(SENTENCES[language], ENGLISH)


@pytest.mark.parametrize(
    "sentence",
    [
        "The river rose by two metres.",
        "Van der Waals forces hold geckos.",
        "El Niño warms Pacific waters.",
        "Los Angeles bans plastic bags.",
        "Untreated patients die 30 percent sooner.",
        "Per capita income rose 3 %, as the word река says.",
        "7 °C",
    ],
)
def test_names_of_other_languages_do_not_make_an_english_sentence_foreign(sentence: str) -> None:
    assert not differ_in_language(sentence, ENGLISH)


def test_sentences_are_compared_with_passages_of_any_language() -> None:
    assert differ_in_language("The river rose by two metres.", GERMAN)
    assert not differ_in_language(SENTENCES["German"], GERMAN)
    assert differ_in_language(TEXTS["Chinese"], TEXTS["Japanese"])
    assert differ_in_language(TEXTS["Ukrainian"], TEXTS["Russian"])
    assert not any(differ_in_language(text, text) or differ_in_language(text, "") for text in TEXTS.values())
