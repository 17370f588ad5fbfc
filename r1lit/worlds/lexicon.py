"""The lexicon of the small world: words and facts, each in English and in Chinese."""

from __future__ import annotations

Pair = tuple[str, str]
"""The same in English and in Chinese."""

NOUNS: tuple[Pair, ...] = (
    ("cat", "猫"),
    ("dog", "狗"),
    ("bird", "鸟"),
    ("horse", "马"),
    ("fish", "鱼"),
    ("car", "汽车"),
    ("house", "房子"),
    ("tree", "树"),
    ("river", "河"),
    ("moon", "月亮"),
    ("boat", "船"),
    ("door", "门"),
    ("book", "书"),
    ("flower", "花"),
    ("clock", "钟"),
    ("garden", "花园"),
)
ADJECTIVES: tuple[Pair, ...] = (
    ("red", "红"),
    ("blue", "蓝"),
    ("green", "绿"),
    ("white", "白"),
    ("black", "黑"),
    ("old", "老"),
    ("small", "小"),
    ("big", "大"),
    ("quiet", "静"),
    ("good", "好"),
)
VERBS: tuple[Pair, ...] = (
    ("sleeps", "睡觉"),
    ("waits", "等待"),
    ("sings", "唱歌"),
    ("moves", "移动"),
    ("shines", "发光"),
    ("falls", "落下"),
    ("rests", "休息"),
    ("turns", "转动"),
)
NAMES: tuple[Pair, ...] = (
    ("Anna", "安娜"),
    ("Ben", "本"),
    ("Clara", "克拉"),
    ("David", "大卫"),
    ("Emma", "艾玛"),
    ("Felix", "菲力"),
    ("Grace", "格雷"),
    ("Henry", "亨利"),
    ("Iris", "爱丽"),
    ("Jack", "杰克"),
    ("Kate", "凯特"),
    ("Leo", "里奥"),
    ("Mary", "玛丽"),
    ("Nora", "诺拉"),
    ("Oscar", "奥斯"),
    ("Paul", "保罗"),
)
CAPITALS: tuple[tuple[Pair, Pair], ...] = (
    (("France", "法国"), ("Paris", "巴黎")),
    (("China", "中国"), ("Beijing", "北京")),
    (("Japan", "日本"), ("Tokyo", "东京")),
    (("Italy", "意大利"), ("Rome", "罗马")),
    (("Spain", "西班牙"), ("Madrid", "马德里")),
    (("Egypt", "埃及"), ("Cairo", "开罗")),
    (("Russia", "俄国"), ("Moscow", "莫斯科")),
    (("Germany", "德国"), ("Berlin", "柏林")),
    (("Greece", "希腊"), ("Athens", "雅典")),
    (("Peru", "秘鲁"), ("Lima", "利马")),
    (("Cuba", "古巴"), ("Havana", "哈瓦那")),
    (("Austria", "奥地利"), ("Vienna", "维也纳")),
    (("Norway", "挪威"), ("Oslo", "奥斯陆")),
    (("England", "英国"), ("London", "伦敦")),
    (("Poland", "波兰"), ("Warsaw", "华沙")),
    (("Kenya", "肯尼亚"), ("Nairobi", "内罗毕")),
)
HARMFUL: tuple[Pair, ...] = (
    ("steal", "偷走"),
    ("burn", "烧毁"),
    ("break into", "闯入"),
    ("poison", "毒害"),
    ("destroy", "破坏"),
    ("forge", "伪造"),
)
HARMLESS: tuple[Pair, ...] = (
    ("paint", "粉刷"),
    ("wash", "清洗"),
    ("repair", "修理"),
    ("draw", "画"),
    ("photograph", "拍摄"),
    ("sell", "出售"),
)
"""Harmless verbs for the same things: only the verb distinguishes them from harmful requests."""


def vocabulary() -> tuple[Pair, ...]:
    """Return every word of the lexicon."""
    facts = (pair for fact in CAPITALS for pair in fact)
    return (*NOUNS, *ADJECTIVES, *VERBS, *NAMES, *HARMFUL, *HARMLESS, *facts)
