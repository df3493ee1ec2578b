"""Article 1 of the Universal Declaration of Human Rights (United Nations, 1948, in the public domain), by language."""
# ruff: noqa: E501 (letters of some scripts count twice)

import numpy as np

ARTICLE_1 = {
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح "
    "الإخاء.",
    "bn": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে। তাঁদের বিবেক এবং বুদ্ধি আছে; সুতরাং সকলেরই একে অপরের "
    "প্রতি ভ্রাতৃত্বসুলভ মনোভাব নিয়ে আচরণ করা উচিত।",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und "
    "sollen einander im Geist der Brüderlichkeit begegnen.",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience "
    "and should act towards one another in a spirit of brotherhood.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y "
    "conciencia, deben comportarse fraternalmente los unos con los otros.",
    "fa": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. همه دارای عقل و وجدان هستند و باید نسبت "
    "به یکدیگر با روح برادری رفتار کنند.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki ja "
    "omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है "
    "और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "id": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama. Mereka dikaruniai akal dan hati "
    "nurani dan hendaknya bergaul satu sama lain dalam semangat persaudaraan.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di "
    "coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを"
    "授けられており、互いに同胞の精神をもって行動しなければならない。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며 서로 "
    "형제애의 정신으로 행동하여야 한다.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, "
    "devem agir uns para com os outros em espírito de fraternidade.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны "
    "поступать в отношении друг друга в духе братства.",
    "sw": "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa. Wote wamejaliwa akili na dhamiri, hivyo yapasa watendeane "
    "kindugu.",
    "te": "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు. వారు వివేదన-అంతఃకరణ సంపన్నులగుటచే "
    "పరస్పరము భ్రాతృభావముతో వర్తింపవలయును.",
    "th": "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิ ต่างในตนมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยจิตวิญญาณแห่งภราดรภาพ",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine "
    "karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "zh": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
}
"""The article by Anserini's codes of languages."""


def cut_pieces(text: str) -> list[str]:
    """Cut a text at spaces, or into pieces of four characters if most of it has no spaces."""
    words = text.split()
    if len(words) > len(text) / 15:
        return words
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def make_texts(language: str, number: int, longest: int, seed: int) -> list[str]:
    """Make texts of 1 to `longest` pieces of the article, in any order, some of them repeated."""
    pieces, random = cut_pieces(ARTICLE_1[language]), np.random.default_rng(seed)
    between = " " if " " in ARTICLE_1[language][:30] else ""
    return [between.join(random.choice(pieces, random.integers(1, longest + 1))) for _ in range(number)]
