"""The languages of texts."""

import pytest

from keystone.indexing.corpora.languages import guess_language, guess_languages

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
