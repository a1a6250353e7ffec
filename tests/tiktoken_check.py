"""GPT-2's ids by tally and by tiktoken; called by tiktoken_check.sh.

    tiktoken_check.py TALLY WORK ROOT MEGABYTES

TALLY is the binary, WORK a folder for intermediate files with GPT-2's vocabulary in WORK/gpt2, ROOT the repository. tiktoken gets the
same vocabulary, so that it needs no download. Compared are, each in blocks of 1 MiB,

    real texts     MEGABYTES of what lies on the machine: licences, manual pages in all languages, Python's and Perl's libraries,
                   locale data, this repository; a like share of each
    code points    every one that Unicode has, beside a letter, a number, a sign, blanks
    tokens         the text of every token, alone and one behind the other
    contractions, blanks and line ends at random, random bytes, random characters

tiktoken takes text only. Bytes that are not UTF-8 are what tally says of them: a run of them is a word of its own, and what is
before ends there. Characters that are new since Python's Unicode may differ, and are counted. Exits with 1 when ids differ.
"""

import gzip
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import time
import unicodedata

import tiktoken

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
BLOCK = 1 << 20
MAX_FILE = 1 << 20

failures = 0


def read_vocabulary(folder):
    """tiktoken's Encoding of a vocab.json and a merges.txt."""
    names = [b for b in range(256) if 33 <= b <= 126 or (b >= 161 and b != 173)]
    others = [b for b in range(256) if b not in names]
    byte_of = {chr(b): b for b in names} | {chr(256 + i): b for i, b in enumerate(others)}
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    special = {"<|endoftext|>": vocab.pop("<|endoftext|>")}
    ranks = {bytes(byte_of[c] for c in name): number for name, number in vocab.items()}
    return tiktoken.Encoding("gpt2-local", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special), list(ranks)


def theirs(encoding, data):
    """Ids of any bytes, by tiktoken."""
    ids, at = [], 0
    while at < len(data):
        try:
            return ids + encoding.encode_ordinary(data[at:].decode("utf-8"))
        except UnicodeDecodeError as error:
            begin, end = at + error.start, at + error.end
        ids += encoding.encode_ordinary(data[at:begin].decode("utf-8"))
        while end < len(data):
            try:
                data[end:end + 4].decode("utf-8")
                break
            except UnicodeDecodeError as error:
                if error.start > 0:
                    break
                end += error.end
        ids += encoding._encode_single_piece(data[begin:end])
        at = end
    return ids


def ours(tally, work, data, *flags):
    result = subprocess.run([tally, "tokenize", "--tokenizer", f"gpt2:{work / 'gpt2'}", *flags], input=data, stdout=subprocess.PIPE)
    if result.returncode != 0:
        sys.exit(f"tiktoken_check: tally tokenize: exit code {result.returncode}")
    return list(map(int, result.stdout.split()))


def differ(encoding, name, data, left, right):
    """Says where two lists of ids part, and with what text."""
    global failures
    failures += 1
    i = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))
    at = len(encoding.decode_bytes(right[:i]))
    print(f"FAIL  {name}: byte {at}, {data[max(0, at - 20):at]!r} | {data[at:at + 40]!r}\n"
          f"      tally    {left[i:i + 8]}\n      tiktoken {right[i:i + 8]}")


def compare(tally, work, encoding, name, blocks):
    size = count = 0
    before = failures
    for data in blocks:
        left, right = ours(tally, work, data), theirs(encoding, data)
        if left != right:
            differ(encoding, name, data, left, right)
        size += len(data)
        count += len(right)
    print(f"{'ok  ' if failures == before else 'FAIL'}  {name}: {size} bytes, {count} tokens", flush=True)


def file_texts(root, suffixes=None):
    """The files of a folder, in an order that is the same every time but mixes what is in it."""
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", ".git", ".venv") and not f.startswith("build-")]
        paths += [os.path.join(folder, n) for n in names if suffixes is None or n.endswith(suffixes)]
    paths.sort()
    random.Random(1).shuffle(paths)
    for path in paths:
        try:
            if os.path.isfile(path) and os.path.getsize(path) <= MAX_FILE:
                data = open(path, "rb").read()
                yield gzip.decompress(data) if path.endswith(".gz") else data
        except (OSError, EOFError, gzip.zlib.error):
            continue


def real_blocks(root, total):
    """Blocks of BLOCK bytes from all sources in turns, until there are `total` bytes or nothing is left."""
    python = os.path.dirname(os.__file__)
    perl = sorted(p for p in pathlib.Path("/usr/share").glob("perl*") if p.is_dir())
    sources = [file_texts("/usr/share/common-licenses"), file_texts("/usr/share/man"), file_texts("/usr/share/doc"),
               file_texts(python, (".py", ".txt", ".rst")), *(file_texts(p) for p in perl),
               file_texts("/usr/share/i18n/locales"), file_texts("/usr/share/locale"), file_texts(root)]
    block = b""
    while sources and total > 0:
        for source in list(sources):
            taken = 0
            for data in source:
                block += data
                taken += len(data)
                if taken >= BLOCK // 8:
                    break
            else:
                sources.remove(source)
            while len(block) >= BLOCK and total > 0:
                yield block[:BLOCK]
                block, total = block[BLOCK:], total - BLOCK
    if total > 0 and block:
        yield block


def code_points(tally, work, encoding):
    """Every code point; those that differ, one by one."""
    line = "a{0}b 1{0}2 .{0}. {0}x  {0} \n{0}\n"
    new = []
    for begin in range(0, 0x110000, 0x2000):
        characters = [chr(c) for c in range(begin, begin + 0x2000) if not 0xD800 <= c < 0xE000]
        blocks = {c: line.format(c).encode() for c in characters}
        if characters and ours(tally, work, b"".join(blocks.values())) != theirs(encoding, b"".join(blocks.values())):
            for c, data in blocks.items():
                left, right = ours(tally, work, data), theirs(encoding, data)
                if left != right and unicodedata.category(c) == "Cn":
                    new.append(ord(c))
                elif left != right:
                    differ(encoding, f"U+{ord(c):04X}", data, left, right)
    print(f"code points: all 1112064; with other ids: {len(new)}, newer than Unicode {unicodedata.unidata_version}", flush=True)


def mixtures(pieces, count, seed):
    """Blocks of `count` random pieces."""
    rng = random.Random(seed)
    return [b"".join(rng.choice(pieces) for _ in range(count)) for _ in range(2)]


def speed(tally, work, encoding, data):
    """Prints megabytes a second of processor time: ours to prepare, with all that belongs to it, and theirs to encode."""
    (work / "text").write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tally, "data", "prepare", work / "text", "--tokenizer", f"gpt2:{work / 'gpt2'}", "--out", work / "data",
                    "--threads", "1"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = data.decode("utf-8", "replace")
    begin = time.process_time()
    encoding.encode_ordinary(text)
    mb = len(data) / 1e6
    print(f"speed: {mb:.0f} MB, tally data prepare {mb / ours:.1f} MB/s, tiktoken {mb / (time.process_time() - begin):.1f} MB/s")


def main():
    tally, work, root, megabytes = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    encoding, tokens = read_vocabulary(work / "gpt2")
    check = lambda name, blocks: compare(tally, work, encoding, name, blocks)
    check("real texts", real_blocks(root, megabytes * 1000 * 1000))
    if megabytes >= 50:
        code_points(tally, work, encoding)
    check("tokens in a row", [b"".join(tokens)])
    check("tokens, a line each", [b"\n".join(tokens)])
    check("contractions", mixtures([w.encode() for w in "' 's 't 're 've 'm 'll 'd 'S 'LL ' s l a I ’s é 1 ' \n '".split(" ")], 100000, 2))
    check("blanks", mixtures([w.encode() for w in " |  |\n|\r|\t|\v|\f|\x1c|\x85|\xa0|\u180e|\u2003|\u200b|\u3000|a|1|.|ж|\x00".split("|")], 100000, 3))
    check("random bytes", [random.Random(4).randbytes(BLOCK // 4)])
    check("UTF-8 that is damaged", mixtures([b"\xe4\xb8", b"\xad", b"\xf0\x9f", b"\xa6\x99", b"\xc3", b" ", b"\xed\xa0\x80", b"\xc0\x80", b"a", b"\n"], 100000, 5))
    known = [chr(c).encode() for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    check("random characters", mixtures(known, 50000, 6))
    text = "<|endoftext|>a<|endoftext|><|endoftext|> <|endoftext" * 1000
    if ours(tally, work, text.encode(), "--allow-special") != encoding.encode(text, allowed_special="all"):
        sys.exit("tiktoken_check: special tokens differ")
    if megabytes >= 50:
        speed(tally, work, encoding, b"".join(real_blocks(root, 20 * 1000 * 1000)))
    print("tiktoken_check: " + (f"{failures} differences" if failures else "all the same"))
    sys.exit(failures > 0)


main()
