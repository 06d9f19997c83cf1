#!/usr/bin/env python3
"""Makes cases.jsonl: templates for each construct of Jinja, and the texts that jinja2 renders from them as transformers
sets it up.

Usage: make_cases.py [--check]. --check compares the recorded file with the installed transformers. A case has the
template, its variables, and either the text with the places of its generation blocks in bytes, or that it is refused.
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

OUTPUT = pathlib.Path(__file__).parent / "cases.jsonl"
NOW = 1700000000  # the time of strftime_now()

VALUES = {
    "messages": [{"role": "user", "content": " Hello "}, {"role": "assistant", "content": "Hi <b>"},
                 {"role": "user", "content": "naïve é 中文 🙂", "tags": ["x", "Y"]}],
    "n": 7, "m": -3, "f": 2.5, "none_value": None, "yes": True, "no": False, "empty": "", "text": "Hello World",
    "list": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"], "nested": [[1, 2], [3, 4], [5, 6]],
    "box": {"b": 1, "a": {"c": [1, {"d": "é\"\\\n\t\u0001"}]}, "items": "hidden", "update": 5, "_x": 6},
    "people": [{"name": "Ann", "age": 30, "city": {"name": "Oslo"}}, {"name": "bob", "age": 25, "city": {"name": "Rome"}},
               {"name": "Cid", "age": 30, "city": {"name": "oslo"}}, {"name": "dan"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}, {"v": 4}]}, {"v": 5}],
    "lines": "one\n two\n\n three\r\nfour\x0bfive",
}

# Expressions by construct; each is printed, also in a list, which shows its repr().
EXPRESSIONS = """
1 + 2 * 3 - 4 | n // 2, n % 4, m // 2, m % 4, n / 2, 2 ** 10, 2 ** -1, -n ** 2 | 7.0 // 2, -7.5 % 2, 1e3, 1.5e-7, 1e16, 1e22, 0.1 + 0.2
1_000, 0x1F, 0o17, 0b101 | yes + 1, True + True, -True, yes * 2.5 | 'a' * 3, 3 * 'ab', [1, 2] * 2, (1,) * 2, 'x' * -1
'a' + 'b', [1] + [2], (1,) + (2,) | 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] | 'a' + 1 | [1] + (2,) | 1 / 0 | 1 % 0 | none + 1
missing + 1 | missing | missing.x | missing['x'] | missing() | missing ~ 'x' | missing == missing2 | missing is defined | -missing
missing in [1] | 1 in missing | missing[1:] | missing < 1 | not missing | missing or 'x' | missing and 'x' | [missing]
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, 'a' < 'b', [1, 2] < [1, 3], (1,) < (1, 2) | 1 < 'a' | none < 1 | 'a' in 'abc', 'x' not in 'abc'
1 in [1, 2], 'b' in box, 5 in (1, 2), [1] in [[1]] | 1 in 'abc' | 1 in 5 | none == none, none is none, '' == none | [1] == (1,)
yes and n, no or 'x', not yes, not '', n and none | 'a' if yes else 'b', ('a' if no) , 'x' if no else 'y' if yes else 'z'
text[0], text[-1], text[1:4], text[::-1], text[-3:], text[:-1], text[::2], text[4:1:-1] | messages[2].content[2], messages[2].content[6:8]
list[0], list[-1], list[1:], list[::-1], nested[0][1] | list[9] | list['x'] | text[99] | list[1:'x'] | none_value[1:] | n[1:] | box[1:]
box.b, box['b'], box['items'], box.a.c[1].d | box.update | box.update() | box['update'] | box._x, box['_x'] | box.__class__
box.items is callable, box.get('b'), box.get('z'), box.get('z', 9) | box.items() | box.keys(), box.values() | box.items()|list
box.pop('b') | list.append(1) | list.index(1), list.count(2) | list.index(9) | {'a': 1, 2: 'b', none: true, 1.5: []} | {[1]: 2} | {'a': 1, 'a': 2}
(1, 2), (1,), (), [], {}, [1, [2, (3,)]] | 'it\\'s', "say \\"x\\"", 'both \\' "', 'tab\\tnew\\nline\\\\ \\x41 \\u00e9 \\q \\101' | 'a' 'b'
text.upper(), text.lower(), text.title(), text.capitalize(), text.swapcase() | ' x '.strip(), ' x '.lstrip(), ' x '.rstrip(), 'xxaxx'.strip('x')
'a,b,,c'.split(','), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), ' a  b '.split(), ' a b c '.split(none, 1), ' a b c '.rsplit(none, 1)
'a'.split('') | lines.splitlines(), lines.splitlines(true) | 'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('x')
text.startswith('He'), text.endswith(('x', 'ld')), text.startswith('e', 1) | text.startswith(1) | text.find('o'), text.rfind('o'), text.find('z'), text.index('W')
text.index('z') | text.count('l'), 'aaa'.count('aa'), 'abc'.count('') | text.replace('o', '0'), text.replace('o', '0', 1), 'abc'.replace('', '-')
'-'.join(['a', 'b']), ''.join('abc') | '-'.join([1]) | 'x'.center(4), 'xy'.center(5), 'x'.ljust(3) ~ '|', 'x'.rjust(3, '.'), '-5'.zfill(4)
'abc'.isalpha(), '12'.isdigit(), 'a1'.isalnum(), ' '.isspace(), 'Ab'.isupper(), 'AB'.isupper(), 'ab'.islower(), 'Ab Cd'.istitle(), ''.isalpha()
'prefix'.removeprefix('pre'), 'prefix'.removesuffix('fix'), 'a\\tb'.expandtabs(4) | 'ß ﬁ ŉ'.upper(), 'İΑΣ'.lower(), 'ßa'.capitalize(), 'ǆ'.title()
'{} {1}'.format(1, 2) | '{} {} {x}'.format(1, 'b', x=2.5) | '{0:>5}|{1:<5}|{2:^5}|{3:05d}|{4:.2f}|{5:,}|{6:x}|{7:+}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 3)
'{a[b]} {p.name}'.format(a=box, p=people[0]) | '{!r:>6}'.format('x') | '{{}}'.format() | '{'.format(1) | '{} {}'.format(1) | '{:d}'.format('x')
'%s is %d and %.2f and %r' % ('x', 5, 2.5, 'y') | '%5s|%-5s|%05d|%x|%o|%e|%g|%+d|%%' % ('a', 'b', 42, 255, 8, 12345.678, 0.0001, 3) | '%(a)s' % {'a': 1}
'%d' % 'x' | '%s' % (1, 2) | '%s %s' % 1 | '%s' % [1, 2] | '%s' % none | 'x' % 1 | 'x' % [] | '%c' % 'a' | '%s' % missing | '%i' % 3.9
n|abs, m|abs, -2.5|abs | 'x'|abs | list|batch(2)|list, list|batch(2, 'x')|list | 'hello wORLD'|capitalize, 'x'|center(5) | missing|default('d'), empty|default('d'), empty|default('d', true), none|d('x')
box|dictsort | {'b': 1, 'A': 2, 'c': 0}|dictsort, {'b': 1, 'A': 2}|dictsort(true), {'b': 1, 'A': 2}|dictsort(by='value'), {'b': 1, 'A': 2}|dictsort(reverse=true) | {'b': 1}|dictsort(by='x')
'<a href="x">\\'&'|e, '<'|escape|escape, '<'|e ~ '<', ('<'|e) + '<', '<'|forceescape, ('<'|safe) + '<', '<' + ('<'|safe), '<'|safe|upper | ('a'|safe) | 'x'|safe is escaped, 'x' is escaped
1500|filesizeformat, 1|filesizeformat, 999|filesizeformat, 1048576|filesizeformat(true), (10**12)|filesizeformat | list|first, list|last, []|first, ''|last | 5|first
'3.7'|float, 'x'|float, 'x'|float(1.5), 3|float, '1e3'|float, ' 2 '|float, 'inf'|float | '%s-%s'|format(1, 2), '%(a)s'|format(a=1) | people[:3]|groupby('age') | people[:3]|groupby('city.name')
lines|indent, lines|indent(2, true), lines|indent('> ', blank=true), ''|indent | '42'|int, '42.9'|int, 'x'|int, 'x'|int(5), '0x1F'|int(base=16), '0b11'|int(0, 2), 3.9|int, none|int, true|int, '1_000'|int, ' 7 '|int, '-0'|int
missing|int | list|join, list|join(', '), people[:2]|join('-', attribute='name'), 'abc'|join('.') | 5|join | text|length, list|count, box|length, missing|length | 5|length
'abc'|list, box|list, (1, 2)|list, missing|list | 5|list | text|lower, none|lower, 5|upper | box|items|list | list|items|list | missing|items|list
people[:3]|map(attribute='name')|list, people|map(attribute='age', default=0)|list, people|map(attribute='age')|list, words|map('upper')|list, words|map('replace', 'a', 'b')|list
words|map('nosuch')|list | words|map('nosuch') is defined | words|map() | words|map()|list | []|map('nosuch')|list | people[:3]|map(attribute='city.name')|join(',')
list|max, list|min, words|max, words|min(case_sensitive=true), people[:3]|max(attribute='age'), []|max | [1, 'a']|max | list|reject('odd')|list, list|select('gt', 1)|list, [0, 1, '']|select|list, [0, 1, '']|reject|list
people|selectattr('age')|map(attribute='name')|list, people|selectattr('age', 'equalto', 30)|list|length, people|rejectattr('age', 'defined')|map(attribute='name')|list | people|selectattr()|list
'a-b'|replace('-', '+'), 'aaa'|replace('a', 'b', 2), 5|replace(5, 6) | list|reverse|list, 'abc'|reverse, (1, 2)|reverse|list | 2.5|round, 3.5|round, 2.567|round(2), 2.1|round(0, 'ceil'), 2.9|round(method='floor'), 7|round, 1234|round(-2), 2.675|round(2)
2|round(1, 'x') | [1, 2, 3, 4, 5]|slice(2)|list, [1, 2, 3, 4, 5]|slice(3, 'x')|list | words|sort, words|sort(case_sensitive=true), words|sort(reverse=true), people[:3]|sort(attribute='age,name')|map(attribute='name')|list
[1, 'a']|sort | [3, 1]|sort|first | 5|string, none|string, 1.0|string, yes|string | [1, 2]|sum, people[:3]|sum(attribute='age'), [[1], [2]]|sum(start=[]), []|sum | ['a']|sum | "it's a test-case (ok)"|title
box|tojson, [1, 1.0, true, none, 'é<'] |tojson, 'é🙂\\x7f'|tojson(ensure_ascii=true), box|tojson(indent=2), []|tojson(indent=2), {}|tojson(4), {'b': 1, 'a': 2}|tojson(sort_keys=true), [1, {'a': 2}]|tojson(separators=(',', ':'))
{1: 2, none: 3, true: 4, 1.5: 5}|tojson | {(1, 2): 3}|tojson | missing|tojson | range(3)|tojson | (1, 2)|tojson | [1, 2]|tojson(indent='--') | [1]|tojson(indent=0) | [1]|tojson(true)
'  x '|trim, 'xxaxx'|trim('x'), none|trim, 5|trim | 'hello world foo'|truncate(11), 'hello world foo'|truncate(9, leeway=0), 'hello world foo'|truncate(9, true, leeway=0), 'hello world'|truncate(8, false, '..', 0)
['a', 'A', 'b', 'a']|unique|list, ['a', 'A']|unique(true)|list, people[:3]|unique(attribute='age')|map(attribute='name')|list | text|upper, 'a b&c/é'|urlencode, {'a b': 'c&d', 'x': 1}|urlencode | 'one two, three'|wordcount
box|attr('b') | box|attr('items') is callable | box|attr('keys')()|list | words|unique is iterable | words|map('upper')|length | words|map('upper') is sequence
3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2) | 'a' is odd | n is number, f is float, n is integer, yes is integer, yes is number, yes is boolean, 1 is boolean | text is string, box is mapping, list is mapping
text is sequence, list is sequence, box is sequence, n is sequence, range(2) is sequence | text is iterable, n is iterable, missing is iterable | none is none, missing is none, missing is undefined, yes is true, 1 is true, no is false
'abc' is lower, 'ABC' is upper, 'aB' is lower, 5 is upper | 1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is ge(2), 1 is in [1, 2], 'a' is in 'abc', 1 is sameas 1, none is sameas none, yes is sameas true
range is callable, n is callable, 'upper' is filter, 'zz' is filter, 'odd' is test | n is not odd, not n is odd | n is odd and yes | n is defined is defined | 1 is nosuch | 1|nosuch
range(3)|list, range(1, 7, 2)|list, range(3, 0, -1)|list, range(0)|list, range(5)|last, range(5)[1], range(2) | range(1, 2, 0) | range(100001) | range('x') | range(1.5)
dict(a=1, b=2), dict([('x', 1)]), dict({'y': 2}, z=3) | dict(1) | namespace(a=1) | namespace(a=1).a | namespace(a=1).b | namespace(_a=1) | joiner()() ~ 'x' | cycler('a', 'b').next()
strftime_now('%d %b %Y'), strftime_now('%Y-%m-%d %H:%M:%S %A %j %% %f %z|') | raise_exception('no') | raise_exception() | nosuch('x') | text() | text.nosuch | text.nosuch() | 5 .x | none.x | none.x.y
[1, 2, 3] | [](1) | {'a': [1, {'b': none}], 'c': (1,)} | 1.0, 100.0, 1e100, -0.0, 1.1, 123456789.123 | 9223372036854775807, -9223372036854775807 | '\\u4e2d', ['中', 'é\\n', '\\x00', '\\x7f', '\\xad', '🙂']
[1, 2][0], (1, 2)[1], 'ab'[1], {'a': 1}['a'], {'a': 1}.a | [[1, 2], [3]][0][1] | (1 + 2) * 3 | -1 | - 1 + 2 | +n, + m | 2 ** 3 ** 2 | -2 ** 2 | not 1 == 2 | 1 if 0 else 2 if 0 else 3
[1, 2,], (1, 2,), {'a': 1,} | range(*[1, 4])|list, dict(**{'a': 1}) | text.replace(*['o', 'x']) | dict(a=1, a=2) | range(1, *[2], 3) | 'x'.upper(1) | ','.join(list=1) | text|trim(1, 2) | text|nosuch if no else 'ok'
[0, 1][true], 'ab'[true] | list.0, nested.0.1 | messages[0]['role'], messages[0].role, messages[-1]["tags"][1] | people|length > 3 and people[0].name == 'Ann' | text|length * 2 | text|upper|lower|title ~ '!' | text | upper
""".strip()

STATEMENTS = [
    # Loops.
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in list %}{{ loop }}{% endfor %}", "{% for x in list %}{{ loop.nosuch }}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}",
    "{% for x in 5 %}a{% endfor %}", "{% for x in none %}a{% endfor %}", "{% for k in box %}{{ k }},{% endfor %}",
    "{% for k, v in box.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in nested %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, b in list %}{% endfor %}", "{% for a, b, c in nested %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in list if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in list %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in list %}{% if x != 1 %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in list %}{% continue %}{% else %}else{% endfor %}", "{% break %}", "{% for x in list %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for n in tree recursive %}[{{ n.v }}{% if n.kids %}{{ loop(n.kids) }}{% endif %}{{ loop.depth }}]{% endfor %}",
    "{% for n in tree %}{{ loop(n.kids) }}{% endfor %}", "{% for x in 'aé中' %}{{ x }}-{% endfor %}",
    "{% for x in list %}{% for y in 'ab' %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in words|map('upper') %}{{ loop.index }}/{{ loop.length }}{{ x }}{{ loop.last }} {% endfor %}",
    "{% set g = words|map('upper') %}{{ g|list }}{{ g|list }}{{ g|first }}", "{% for x in list %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}{{ x }}",
    "{% set i = 0 %}{% for x in list %}{{ i }}{% set i = i + x %}{{ i }} {% endfor %}{{ i }}",
    "{% set ns = namespace(done=false, all='') %}{% for x in list if not ns.done %}{% set ns.all = ns.all ~ x %}{% if x == 1 %}{% set ns.done = true %}{% endif %}{% endfor %}{{ ns.all }}{{ ns.done }}{{ ns }}",
    "{% for x in list %}{% set loop = 1 %}{{ loop.index }}{% endfor %}", "{% for message in messages -%}\n  {{ message.role }}\n  {%- if not loop.last %}, {% endif %}\n{%- endfor %}",
    # Conditions and assignments.
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if m > 5 %}a{% elif m > -5 %}b{% else %}c{% endif %}{% if none %}a{% endif %}",
    "{% if yes %}{% set v = 1 %}{% endif %}{{ v }}{% if no %}{% set w = 1 %}{% endif %}{{ w }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}",
    "{% set v %}  block {{ n }} {% endset %}[{{ v }}]{{ v is string }}", "{% set v | trim | upper %}  block {{ n }} {% endset %}[{{ v }}]", "{% set v %}{% set inner = 1 %}{% endset %}{{ inner }}",
    "{% set n.x = 1 %}", "{% set ns = namespace() %}{% set ns.x = 1 %}{% set ns.x = ns.x + 1 %}{{ ns.x }}{{ ns['x'] }}{% set ns._y = 2 %}", "{% set ns = namespace(a=1, b=[2]) %}{{ ns }}{{ ns.a }}{{ ns.c }}{{ ns.c.d }}",
    "{% set true = 1 %}", "{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% set x = 3 %}{% endwith %}{{ x }}{{ y }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    # Macros.
    "{% macro m(a, b='x', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=2) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4, y=5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m() %}{{ later }}{% endmacro %}{% set later = 'ok' %}{{ m() }}", "{% macro m() %}{{ x }}{% endmacro %}{% for x in list %}{{ m() }}{% endfor %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ n }}{% endcall %}", "{% macro m() %}<{{ caller(1, b=2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(a, b=1) %}{{ caller }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}", "{% macro m() %}a{% endmacro %}{{ m() ~ m() }}{{ m()|upper }}{{ m() + 'b' }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{{ m }}{% endmacro %}{{ m() }}", "{% call n %}x{% endcall %}", "{% filter upper %}abc {{ n }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}abc{% endfilter %}",
    "{% macro a() %}{% macro b() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ b() }}{% endmacro %}{{ a() }}{{ b }}", "{% block title %}x{{ n }}{% endblock %}", "{% block b %}{% set q = 1 %}{{ q }}{% endblock b %}{{ q }}", "{% print n, 'x' %}",
    # Generation blocks.
    "é{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}é{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}",
    "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "{% macro m() %}a{% generation %}b{% endgeneration %}{% endmacro %}xy{{ m() }}{% generation %}{% endgeneration %}", "{% for x in tree recursive %}a{% generation %}b{% endgeneration %}{% endfor %}",
    "{% for x in list %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}", "{%- generation -%}\n a \n{%- endgeneration -%}\n b", "{% for x in list %}{% generation %}{% continue %}{% endgeneration %}{% endfor %}",
    # White space, comments, raw text.
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}\n c", "a  {%- if yes -%}  b  {%- endif -%}  c", "a\n  {%+ if yes +%}\nb{% endif %}", "  {{ n }}  \n  {{- n -}}  \n x", "x {{ n }}\n\n\ny\n\n",
    "a\n  {# note #}\n b {#- c -#}\n d", "{# {% if %} #}x{#\n#}y", "{#+ a +#}\nx", "{% raw %}{{ n }}{% if %}{% endraw %}\nx", "a {%- raw -%} \n {{ x }} {%- endraw -%} \n b", "  {% raw %}\n x\n  {% endraw %}\ny", "\r\na\r\nb\rc\n", "{{ 'a\r\nb' }}",
    "{% if yes -%}\n\n  x\n\n{%- endif %}\n\n y", "\t{% if yes %}x{% endif %}\t{% if yes %}\ny{% endif %}", "{{ '{{' }}{{ \"}}\" }}{{ {'a': {'b': 1}}['a'] }}", "{{ n }}{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}", "{ { n } } {% %}", "{a} {", "{{ n -}}\n\n  x", "{%- set x = 1 %}\n{{- x }}\n\u3000{%- if yes %}é{% endif %}",
    # Faults of syntax.
    "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ 'abc }}", "{% if %}{% endif %}", "{% if yes %}", "{% endif %}", "{% for x list %}{% endfor %}", "{% nosuch %}", "{{ a b }}", "{{ [1 2] }}", "{{ ! }}", "{{ n", "{# x", "{% raw %}x", "{{ 1 if }}", "{% set %}", "{% set x %}",
    "{% set 1 = 2 %}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ '\\x4' }}", "{{ a. }}", "{{ a.1.2 }}", "{% for %}", "{% else %}", "{{ n|}}", "{{ n is }}", "{% macro %}{% endmacro %}", "{% if yes %}{{ n|nosuch }}{% endif %}", "{% if no %}{{ n|nosuch }}{% endif %}ok", "{% if no %}{% for x in list %}{{ n|nosuch }}{% endfor %}{% endif %}", "{{ n|nosuch if no else 1 }}", "{{ n is nosuch if no else 1 }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}", "{% if no %}{% include 'x' %}{% endif %}ok", "{{ [].append }}{{ ''.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ messages.__init__ }}{{ n.__add__(1) }}",
    # Whole templates.
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + '</s>' }}{% endif %}{% endfor %}",
    "{%- set ns = namespace(last=-1) -%}\n{%- for m in messages[::-1] %}\n{%- set i = (messages|length - 1) - loop.index0 %}\n{%- if m.role == 'user' and ns.last < 0 %}{% set ns.last = i %}{% endif %}\n{%- endfor %}\n{{- ns.last }}",
    "{% macro kind(p) %}{% if p.type is string %}{{ p.type }}{% else %}{% for t in p.type %}{{ t }}{% if not loop.last %} | {% endif %}{% endfor %}{% endif %}{% endmacro %}{% for k, p in {'a': {'type': 'x'}, 'b': {'type': ['y', 'z']}}|dictsort %}{{ k }}: {{ kind(p) }}\n{% endfor %}",
]


def cases():
    for row in EXPRESSIONS.replace("\n", " | ").split(" | "):
        yield "{{ " + row.strip() + " }}"
        yield "{{ [" + row.strip() + "] }}"
    yield from STATEMENTS


def render(template):
    """Returns the text and the places of generation blocks, or None."""
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        text = compiled.render(**VALUES)
        given = {"tools": None, "documents": None, "add_generation_prompt": False, **VALUES}
        _, generated = chat_template_utils._render_with_assistant_indices(compiled, **given)
    except Exception:
        return None
    size = lambda end: len(text[:end].encode())
    return {"text": text, "generated": [[size(begin), size(end)] for begin, end in generated]}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def main():
    chat_template_utils.datetime = FixedTime
    rows = [VALUES]
    for template in cases():
        result = render(template)
        if result is None or " at 0x" not in result["text"]:
            rows.append({"template": template, **(result or {"refused": True})})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if sys.argv[1:] == ["--check"]:
        assert OUTPUT.read_text() == text, "jinja2 renders other texts than cases.jsonl records"
    else:
        OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
