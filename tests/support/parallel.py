"""The same short documents and questions in five languages, made from a table of words."""
# ruff: noqa: E501 (letters of some scripts count twice)

from dataclasses import dataclass
from pathlib import Path

import orjson

_WORDS = {
    "en": "bee volcano bridge salt tea silk whale clock lemon castle mirror horse glass island wheat moon cheese violin "
    "tiger canal",
    "es": "abeja volcán puente sal té seda ballena reloj limón castillo espejo caballo vidrio isla trigo luna queso violín "
    "tigre canal",
    "ru": "пчела вулкан мост соль чай шёлк кит часы лимон замок зеркало лошадь стекло остров пшеница луна сыр скрипка тигр "
    "канал",
    "zh": "蜜蜂 火山 桥梁 食盐 茶叶 丝绸 鲸鱼 钟表 柠檬 城堡 镜子 马匹 玻璃 岛屿 小麦 月亮 奶酪 小提琴 老虎 运河",
    "ar": "نحلة بركان جسر ملح شاي حرير حوت ساعة ليمون قلعة مرآة حصان زجاج جزيرة قمح قمر جبن كمان نمر قناة",
}
WORDS = {code: words.split() for code, words in _WORDS.items()}
"""Twenty subjects in each language, in the same order."""
FACTS = {
    "en": (
        "The {} was the subject of a long report that a committee wrote for the city council.",
        "According to a museum, the {} changed the daily life of many families in the country.",
    ),
    "es": (
        "El informe que un comité escribió para el ayuntamiento de la ciudad trata de {}.",
        "Según un museo, {} cambió la vida diaria de muchas familias en el país.",
    ),
    "ru": (
        "Длинный доклад, который комитет написал для городского совета, имеет тему: {}.",
        "По словам музея, {} изменил повседневную жизнь многих семей в стране.",
    ),
    "zh": ("一个委员会为市议会撰写的长篇报告的主题是{}。", "据一家博物馆介绍,{}改变了全国许多家庭的日常生活。"),
    "ar": (
        "كتبت لجنة لمجلس المدينة تقريرا طويلا موضوعه {}.",
        "وفقا لمتحف في المدينة، غير {} الحياة اليومية لكثير من الأسر في البلاد.",
    ),
}
QUESTIONS = {
    "en": "What do people say about the {}?",
    "es": "¿Qué se dice sobre {}?",
    "ru": "Что говорят о предмете {}?",
    "zh": "人们对{}有什么看法?",
    "ar": "ماذا يقال عن {}؟",
}
_REPORTED = (
    "The {} was the subject of a report for a city council, as a text in {} says.",
    "A museum says in {1} that the {0} changed how families live.",
)
_NAMES = {"en": "English", "es": "Spanish", "ru": "Russian", "zh": "Chinese", "ar": "Arabic"}


@dataclass(frozen=True)
class ParallelDocument:
    """A document, the number of its subject, and the English sentence that reports it."""

    id: str
    language: str
    text: str
    subject: int
    report: str


def make_documents() -> list[ParallelDocument]:
    """Make two documents on each subject in each language, with ids of RAGTIME's form in no order of languages."""
    found = []
    for place, (subject, fact, code) in enumerate((s, f, c) for s in range(20) for f in range(2) for c in WORDS):
        name = f"{place * 7919 % 200:08x}-0000-4000-8000-000000000000_1"
        text = FACTS[code][fact].format(WORDS[code][subject])
        report = _REPORTED[fact].format(WORDS["en"][subject], _NAMES[code])
        found.append(ParallelDocument(name, code, text, subject, report))
    return found


def write_documents(path: Path) -> Path:
    """Write the documents as JSONL, with their languages in the field `lang`."""
    records = ({"id": one.id, "text": one.text, "lang": one.language} for one in make_documents())
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def write_questions(path: Path, translated: bool = True) -> Path:
    """Write a question on each subject in English, with or without its translations."""
    records = []
    for subject in range(20):
        asked = {code: text.format(WORDS[code][subject]) for code, text in QUESTIONS.items()}
        record = {"id": f"q{subject:02d}", "narrative": asked.pop("en"), "limit": 2000}
        records.append(record | ({"translations": asked} if translated else {}))
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path
