# SPDX-License-Identifier: Apache-2.0
"""Pictures and tokenizers that other libraries wrote: directories as torchvision's ImageFolder reads them, of PNG and JPEG by Pillow; NumPy's
arrays of images and masks; Hugging Face's tokenizer.json and tiktoken's ranks. The libraries tokenizers and tiktoken are not in Debian 12: their files
are written by their published formats, and what they make of a text by tiktoken's published algorithm; where they are installed, by themselves."""
import base64
import json
import os
import re

import numpy
import pytest
from outside_desk import TRAINER, Desk
from PIL import Image
from torchvision.datasets import ImageFolder

CNN = "--model=cnn --batch-size=4 --epochs=6 --cache-dir=cache"
UNET = "--model=unet2d --init-features=1 --batch-size=2 --steps=4 --cache-dir=cache"
GPT = "--model=gpt --num-layers=1 --num-attention-heads=2 --hidden-size=32 --seq-length=32 --batch-size=4 --steps=20 --cache-dir=cache"
STEP = "srun -N2 --ntasks-per-node=2 --dp-world=auto"
DRAW = numpy.random.default_rng(5)


@pytest.fixture(scope="module")
def desk(cluster):
    return Desk(cluster)


def kept(desk, stdout):
    return desk.cluster.host_path("/home/alice/outside/" + re.search(r"(?m); kept in (cache/\S+)$", stdout).group(1))


def refusal(desk, command):
    done = desk.run(command, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    return lines[0]


def write_pets(root):
    """Bright ones are cats, whatever their file is like."""
    for part, count in (("train", 24), ("val", 6)):
        for name, light in (("dog", 60), ("cat", 190), ("Zebu", 125)):
            os.makedirs(f"{root}/{part}/{name}/more", exist_ok=True)
            for number in range(count):
                side = int(DRAW.integers(5, 90)), int(DRAW.integers(5, 90))
                pixels = numpy.clip(DRAW.normal(light, 12, (*side, 3)) + DRAW.normal(0, 8, 3), 0, 255).astype(numpy.uint8)
                picture = Image.fromarray(pixels)
                kind = ["PNG", "JPEG", "palette", "grey", "alpha", "progressive", "grey JPEG", "CMYK"][number % 8]
                if kind in ("palette", "grey", "alpha", "grey JPEG", "CMYK"):
                    picture = picture.convert({"palette": "P", "alpha": "RGBA", "CMYK": "CMYK"}.get(kind, "L"))
                if kind == "alpha":
                    picture.putalpha(Image.fromarray(DRAW.integers(0, 256, side, dtype=numpy.uint8)))
                below = "more/" if number % 3 == 0 else ""
                extension = "jpg" if kind in ("JPEG", "progressive", "grey JPEG", "CMYK") else "png"
                options = {"progressive": True} if kind == "progressive" else {}
                picture.save(f"{root}/{part}/{name}/{below}{number}.{extension}", **options)


def test_an_image_folder_has_torchvisions_classes_and_pillows_pixels(desk):
    root = desk.folder("pets")
    write_pets(root)
    done = desk.run(f"{TRAINER} {CNN} --data-dir=pets --checkpoint-dir=pets.run")
    assert "pets: 72 images to train and 18 to test with, as grey of 28 x 28 pixels, 3 classes: Zebu, cat, dog; kept in cache/images-" in done.stdout
    where = kept(desk, done.stdout)
    for part in ("train", "val"):
        images, labels = numpy.load(f"{where}/{part}_images.npy"), numpy.load(f"{where}/{part}_labels.npy")
        theirs = ImageFolder(f"{root}/{part}", loader=Image.open)
        assert theirs.classes == json.load(open(f"{where}/images.json", encoding="utf-8"))["classes"]
        expected = []
        for picture, label in theirs:
            picture = picture.convert("RGB") if picture.mode == "CMYK" else picture
            expected.append((label, picture.convert("L").resize((28, 28), Image.BILINEAR).tobytes()))
        assert sorted(expected) == sorted((label, image.tobytes()) for label, image in zip(labels.tolist(), images))

    # It learns what the pictures show, and evaluate has the same on what is kept.
    trained = json.loads(done.stdout.splitlines()[-1])
    assert trained["test_accuracy"] > 0.9, done.stdout
    tested = desk.summary(f"{TRAINER} evaluate --checkpoint-dir=pets.run --data-dir={os.path.relpath(where, desk.folder('.'))}")
    assert tested["test_loss"] == pytest.approx(trained["test_loss"]) and tested["test_samples"] == 18
    assert "images as they are, and a test needs them as the model takes them" in refusal(desk, f"{TRAINER} evaluate --checkpoint-dir=pets.run --data-dir=pets")

    # Ranks of several nodes at the same time: one converts, all have the same.
    few = "--model=cnn --deterministic --data-dir=pets --batch-size=1 --steps=8"
    alone = desk.summary(f"{TRAINER} {few} --accumulate=4 --cache-dir=cache")
    four = desk.summary(f"{STEP} {TRAINER} {few} --cache-dir=other")
    assert four["world_size"] == 4 and four["parameters_hash"] == alone["parameters_hash"]
    # A plan that was compiled is of the same set.
    assert desk.run(f"{TRAINER} compile {CNN} --data-dir=pets").returncode == 0
    assert desk.run(f"{TRAINER} {CNN} --data-dir=pets").returncode == 0


def test_pictures_that_are_cut_are_refused_by_name_or_left_out(desk):
    root = desk.folder("cut")
    write_pets(root)
    for name in ("1.jpg", "2.png"):
        file = next(f"{root}/train/cat/{below}{name}" for below in ("", "more/") if os.path.exists(f"{root}/train/cat/{below}{name}"))
        os.truncate(file, os.path.getsize(file) // 2)
    line = refusal(desk, f"{STEP} {TRAINER} {CNN} --data-dir=cut")
    assert re.search(r"cut/train/cat/\d\.\w+: it is damaged \(lib\w+: .*\); correct it, or give --bad-samples=skip to leave out 2 of 90 images", line), line
    done = desk.run(f"{TRAINER} {CNN} --data-dir=cut --bad-samples=skip")
    assert "cut: 70 images to train and 18 to test with" in done.stdout and "; 2 skipped, the first: cut/train/cat/" in done.stdout
    assert sorted(open(f"{kept(desk, done.stdout)}/skipped.list").read().split()) == ["cut/train/cat/1.jpg", "cut/train/cat/2.png"]
    many = desk.folder("many")
    for number in range(11):
        os.makedirs(f"{many}/{number}", exist_ok=True)
        Image.new("L", (9, 9)).save(f"{many}/{number}/a.png")
    assert "many: has 11 classes, and cnn and ffn take at most 10; give fewer directories" in refusal(desk, f"{TRAINER} {CNN} --data-dir=many")


def test_masks_train_the_same_from_arrays_and_from_files(desk):
    images = DRAW.integers(0, 256, (8, 40, 64, 3), dtype=numpy.uint8)
    masks = (images[..., 0] > 128)
    numpy.save(desk.folder("arrays") + "/images.npy", images)
    numpy.save(desk.folder("arrays") + "/masks.npy", masks)
    for number in range(8):
        Image.fromarray(images[number]).save(desk.folder("files/images") + f"/{number}.png")
        Image.fromarray(masks[number].astype(numpy.uint8) * 255).save(desk.folder("files/masks") + f"/{number}.png")
        numpy.save(desk.folder("mixed/images") + f"/{number}.npy", images[number] / 255)
        numpy.save(desk.folder("mixed/masks") + f"/{number}.npy", masks[number].astype(numpy.int64))
    done = {name: desk.run(f"{TRAINER} {UNET} --data-dir={name}") for name in ("arrays", "files", "mixed")}
    assert "arrays: 7 images to train and 1 to test with, as colours of 256 x 256 pixels; kept in " in done["arrays"].stdout
    hashes = {name: json.loads(one.stdout.splitlines()[-1])["parameters_hash"] for name, one in done.items()}
    assert len(set(hashes.values())) == 1, hashes
    where = kept(desk, done["arrays"].stdout)
    found = {image.tobytes(): mask.tobytes() for image, mask in zip(numpy.load(f"{where}/train_images.npy"), numpy.load(f"{where}/train_masks.npy"))}
    missing = 0
    for image, mask in zip(images, masks):
        pixels = numpy.asarray(Image.fromarray(image).resize((256, 256), Image.BILINEAR)).transpose(2, 0, 1).tobytes()
        missing += pixels not in found
        if pixels in found:
            assert found[pixels] == numpy.asarray(Image.fromarray(mask.astype(numpy.uint8)).resize((256, 256), Image.NEAREST)).tobytes()
    assert missing == 1, "the one to test with"
    numpy.save(desk.folder("wrong/images") + "/0.npy", images[0])
    numpy.save(desk.folder("wrong/masks") + "/0.npy", numpy.arange(40 * 64).reshape(40, 64) % 3)
    assert "wrong/images/0.npy: its mask has 1 and 2 beside 0, and unet2d finds one class" in refusal(desk, f"{TRAINER} {UNET} --data-dir=wrong")


# ---- tokenizers

TEXT = "".join(f"{number} low towers' lower lights, and the lowest one shines!\n\n" for number in range(400))
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")  # GPT-2's, of ASCII


def characters():
    """GPT-2's bytes_to_unicode()."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def printed(text):
    return "".join(characters()[byte] for byte in text)


def merged(ranks, word):
    """tiktoken's byte_pair_merge(): of all neighbours those first that make the token of the least rank."""
    parts = [bytes([byte]) for byte in word]
    while True:
        known = [(ranks[left + right], place) for place, (left, right) in enumerate(zip(parts, parts[1:])) if left + right in ranks]
        if not known:
            return [ranks[part] for part in parts]
        place = min(known)[1]
        parts[place:place + 2] = [parts[place] + parts[place + 1]]


def encoded(ranks, text):
    return [token for word in WORDS.findall(text) for token in merged(ranks, word.encode())]


def learnt(merges):
    """Byte pairs as they are learnt: the most frequent pair becomes a token. {bytes: rank}, and the pairs."""
    ranks = {bytes([byte]): rank for rank, byte in enumerate(characters())}
    pairs = []
    words = [[bytes([byte]) for byte in word.encode()] for word in WORDS.findall(TEXT[:3000])]
    for _ in range(merges):
        count = {}
        for word in words:
            for pair in zip(word, word[1:]):
                count[pair] = count.get(pair, 0) + 1
        best = max(count, key=lambda pair: (count[pair], pair))
        pairs.append(best)
        ranks[best[0] + best[1]] = len(ranks)
        for word in words:
            place = 0
            while place + 1 < len(word):
                if (word[place], word[place + 1]) == best:
                    word[place:place + 2] = [best[0] + best[1]]
                place += 1
    return ranks, pairs


RANKS, PAIRS = learnt(60)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def tokenizer_json():
    """As tokenizers 0.15 writes it (Tokenizer.save())."""
    vocabulary = {printed(text): rank for text, rank in RANKS.items()} | {"<|endoftext|>": len(RANKS)}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": len(RANKS), "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
            "normalizer": None, "pre_tokenizer": BYTE_LEVEL, "post_processor": BYTE_LEVEL, "decoder": BYTE_LEVEL,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "byte_fallback": False, "vocab": vocabulary, "merges": [f"{printed(left)} {printed(right)}" for left, right in PAIRS]}}


def write_texts(desk):
    for name in ("plain", "merges", "json", "ranks"):
        with open(desk.folder(f"texts/{name}") + "/train.txt", "w", encoding="utf-8") as file:
            file.write(TEXT)
    with open(desk.folder("texts/merges") + "/merges.txt", "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(f"{printed(left)} {printed(right)}\n" for left, right in PAIRS))
    with open(desk.folder("texts/json") + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(), file, ensure_ascii=False)
    with open(desk.folder("texts/ranks") + "/own.tiktoken", "w", encoding="ascii") as file:
        file.writelines(f"{base64.b64encode(text).decode()} {rank}\n" for text, rank in RANKS.items())


def tokens_in(where):
    return numpy.fromfile(f"{where}/train_000000.bin", numpy.uint16, offset=1024).tolist()


def test_a_tokenizer_is_taken_from_any_of_its_files(desk):
    write_texts(desk)
    hashes = {}
    for name, kind in (("merges", "gpt2"), ("json", "huggingface"), ("ranks", "tiktoken")):
        beside = desk.run(f"{TRAINER} {GPT} --data-dir=texts/{name} --checkpoint-dir={name}.run")
        assert f"(tokenizer {kind}, vocabulary {len(RANKS) + 1}); kept in cache/text-" in beside.stdout, beside.stdout
        assert tokens_in(kept(desk, beside.stdout)) == [len(RANKS), *encoded(RANKS, TEXT)]
        hashes[name] = json.loads(beside.stdout.splitlines()[-1])["parameters_hash"]
        file = next(one for one in os.listdir(desk.folder(f"texts/{name}")) if one != "train.txt")
        given = desk.run(f"{STEP} {TRAINER} {GPT.replace('--batch-size=4', '--batch-size=1')} --data-dir=texts/plain --tokenizer=texts/{name}/{file}")
        assert tokens_in(kept(desk, given.stdout)) == [len(RANKS), *encoded(RANKS, TEXT)]
        where = os.path.relpath(kept(desk, beside.stdout), desk.folder("."))
        said = desk.run(f"{TRAINER} generate --checkpoint-dir={name}.run --data-dir={where} --prompt='12 low towers' --tokens=5 --temperature=0").stdout
        assert said.startswith("12 low towers")
        exported = desk.run(f"{TRAINER} export --checkpoint={name}.run --data-dir={where} --output={name}.exported").stdout
        folder = desk.folder(f"{name}.exported")
        assert json.load(open(f"{folder}/config.json", encoding="utf-8"))["eos_token_id"] == len(RANKS)
        if name == "json":
            assert "with its tokenizer (tokenizer.json)" in exported and json.load(open(f"{folder}/tokenizer.json", encoding="utf-8")) == tokenizer_json()
        else:
            assert json.load(open(f"{folder}/vocab.json", encoding="utf-8")) == tokenizer_json()["model"]["vocab"]
            assert open(f"{folder}/merges.txt", encoding="utf-8").read() == open(desk.folder("texts/merges") + "/merges.txt", encoding="utf-8").read()
        # The weights' own, where the texts have none.
        begun = desk.run(f"{TRAINER} {GPT} --data-dir=texts/plain --init-from={name}.exported")
        assert tokens_in(kept(desk, begun.stdout)) == [len(RANKS), *encoded(RANKS, TEXT)]
    assert len(set(hashes.values())) == 1, hashes
    prepared = desk.run(f"{TRAINER} prepare --text texts/plain --tokenizer=texts/json/tokenizer.json --output=prepared")
    assert "tokenizer huggingface" in prepared.stdout
    assert tokens_in(desk.folder("prepared"))[1:] == encoded(RANKS, TEXT)[:len(tokens_in(desk.folder("prepared"))) - 1]


def test_a_tokenizer_that_would_give_other_tokens_is_refused(desk):
    write_texts(desk)
    for change, why in (
            (lambda one: one["model"].update(type="WordPiece"), "its model is WordPiece, and this trainer has BPE alone"),
            (lambda one: one.update(pre_tokenizer={"type": "Metaspace"}), "its pre_tokenizer is Metaspace, and this trainer has ByteLevel alone"),
            (lambda one: one.update(added_tokens=[]), "it lacks <|endoftext|>, which this trainer puts before each document"),
            (lambda one: one["model"]["vocab"].pop("w"), "it lacks a token for the byte 0x77, which a text may have")):
        wrong = tokenizer_json()
        change(wrong)
        with open(desk.folder("texts") + "/wrong.json", "w", encoding="utf-8") as file:
            json.dump(wrong, file)
        assert f"texts/wrong.json: {why}; give a byte-level tokenizer" in refusal(desk, f"{TRAINER} {GPT} --data-dir=texts/plain --tokenizer=texts/wrong.json")
    # Tokens that somebody else's tokenizer made, beside one that lacks them.
    numpy.save(desk.folder("foreign") + "/tokens.npy", numpy.arange(5000, dtype=numpy.uint16) % 1000)
    with open(desk.folder("foreign") + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(), file)
    assert f"foreign/tokens.npy: token 999 is outside the model's vocabulary of {len(RANKS) + 1}; " in refusal(desk, f"{TRAINER} {GPT} --data-dir=foreign")


@pytest.mark.parametrize("name", ["tokenizers", "tiktoken"])
def test_tokens_are_the_librarys(desk, name):
    library = pytest.importorskip(name, reason=f"Debian 12 has no {name}; its algorithm is compared with instead")
    write_texts(desk)
    if name == "tokenizers":
        theirs = library.Tokenizer.from_file(desk.folder("texts/json") + "/tokenizer.json").encode(TEXT).ids
        folder = "json"
    else:
        theirs = library.Encoding("own", pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", mergeable_ranks=RANKS,
                                  special_tokens={"<|endoftext|>": len(RANKS)}).encode(TEXT)
        folder = "ranks"
    done = desk.run(f"{TRAINER} {GPT} --data-dir=texts/{folder}")
    assert tokens_in(kept(desk, done.stdout))[1:] == theirs
