/* The files that GPT-2's tokenizer is read from, right and wrong ones; and what holds all of it without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/bpe_rig.h"

static void assert_same_tokenizer(const char *where)
{
    Tokenizer *t = loaded(where);
    uint8_t text[2000];
    assert_int_equal(tokenizer_vocab_size(t), SMALL_VOCAB);
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), SMALL_VOCAB - 1);
    assert_string_equal(tokenizer_kind(t), "gpt2");
    assert_as_reference(t, text, random_text(text, sizeof text));
    tokenizer_destroy(t);
}

static void all_files_say_the_same(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta(), *root = small_tokenizer_json(meta), *pairs = json_array(), *line;
    size_t i;
    pair_write("pair", meta);
    assert_same_tokenizer("gpt2:pair");
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");
    json_array_foreach(json_object_get(meta, "merges"), i, line)
    {
        const char *text = json_string_value(line), *space = strchr(text, ' ');
        json_array_append_new(pairs, json_pack("[s#, s]", text, (int)(space - text), space + 1));
    }
    json_object_set_new(json_object_get(root, "model"), "merges", pairs);
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");
    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "<|endoftext|>"); /* only an added token */
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");

    Tokenizer *t = loaded("gpt2:one");
    json_t *written = tokenizer_to_json(t, &e);
    assert_true(json_write("meta.json", written, &e));
    tokenizer_destroy(t);
    json_decref(written);
    assert_same_tokenizer("meta.json");
    json_decref(meta);
    json_decref(root);
}

/* A merges.txt as Windows or an editor leaves it: CR LF, no comment, no end of the last line; and merges that begin with '#'. */
static void merges_in_other_clothes(void **state)
{
    (void)state;
    json_t *meta = small_meta(), *vocab = json_object_get(meta, "vocab");
    json_object_set_new(vocab, "##", json_integer(SMALL_VOCAB));
    json_object_set_new(vocab, "<>", json_integer(SMALL_VOCAB + 1)); /* a merge makes it: it is not special */
    pair_write("clothes", meta);
    put("clothes/merges.txt", "# #\r\n\r\n< >\nh e");
    Tokenizer *t = loaded("gpt2:clothes");
    assert_pieces(t, "##he", 4, "##|he");
    assert_int_equal(tokenizer_special(t, "<>"), -1);
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), SMALL_VOCAB - 1);
    tokenizer_destroy(t);
    json_decref(meta);
}

/* Files that are wrong: each is refused with a message that says where. A `change` is JSON that is merged into {"vocab",
 * "merges"}. */
static void pairs_refused(void **state)
{
    (void)state;
    static const struct {
        const char *change, *says;
    } cases[] = {
        {"{\"vocab\": {\"q\": 5000}}", "bad: vocab: \"q\" needs an id from 0 to "},
        {"{\"vocab\": {\"q\": 1}}", "has the id 1, which is that of \""},
        {"{\"vocab\": {\"q\": -1}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": 1.5}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": \"x\"}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": null}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": 4294967409}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"more\": 5000}}", "\"more\" needs an id from 0 to "},
        {"{\"vocab\": {\"a b\": 292}}", "\"a b\" (id 292) has the character U+0020, which stands for no byte"},
        {"{\"vocab\": {\"\xE4\xB8\xAD\": 292}}", "(id 292) has the character U+4E2D, which stands for no byte"},
        {"{\"vocab\": {\"\": 292}}", "the token of id 292 is an empty text"},
        {"{\"merges\": [\"h  e\"]}", "merges: number 1, \"h  e\", is not two tokens of the vocabulary that make a third"},
        {"{\"merges\": [\"h e\", \"he x\"]}", "merges: number 2, \"he x\", is not two tokens"},
        {"{\"merges\": [\"he\"]}", "merges: number 1, \"he\", is not"},
        {"{\"merges\": [\"zz z\"]}", "merges: number 1, \"zz z\", is not"},
        {"{\"merges\": [\"h e\", \"l l\", \"h e\"]}", "merges: number 3 is the same as number 1"},
        {"{\"merges\": [\" he\"]}", "merges: number 1, \" he\", is not"},
        {"{\"merges\": [\"he \"]}", "merges: number 1, \"he \", is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        json_t *meta = small_meta(), *change = json_loads(cases[i].change, 0, NULL);
        json_object_update_recursive(meta, change);
        pair_write("bad", meta);
        Tokenizer *t = tokenizer_load("gpt2:bad", &e);
        if (t || !strstr(e.text, cases[i].says) || strncmp(e.text, "bad: ", 5) != 0)
            fail_msg("%s: wanted \"%s\", got \"%s\"", cases[i].change, cases[i].says, e.text);
        json_decref(meta);
        json_decref(change);
    }
}

/* A vocabulary without one of the bytes. */
static void byte_missing(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta(), *vocab = json_object_get(meta, "vocab");
    json_object_del(vocab, "q");
    json_object_set_new(vocab, "qq", json_integer('q'));
    assert_null(tokenizer_from_json(meta, "small", &e));
    assert_string_equal(e.text, "small: vocab: has no token for the byte 0x71 (U+0071): every byte needs one");
    json_decref(meta);
}

static void files_refused(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta();
    static const struct {
        const char *file, *text, *says;
    } cases[] = {
        {"merges.txt", "h e\n\xFF x\n", "wrong/merges.txt: line 2: not UTF-8"},
        {"vocab.json", "{\"a\": 1, \"a\": 2}", "wrong/vocab.json:1:"}, /* twice */
        {"vocab.json", "[]", "wrong/vocab.json:1:1: holds a list"},
        {"vocab.json", "", "wrong/vocab.json:1:0: not JSON"},
        {"vocab.json", "{}", "wrong: vocab: has no token for the byte 0x00"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[PATH_SIZE];
        pair_write("wrong", meta);
        snprintf(path, sizeof path, "wrong/%s", cases[i].file);
        put(path, cases[i].text);
        e = (Error){0};
        Tokenizer *t = tokenizer_load("gpt2:wrong", &e);
        if (t || !strstr(e.text, cases[i].says))
            fail_msg("wanted \"%s\", got \"%s\"", cases[i].says, e.text);
    }
    pair_write("wrong", meta);
    assert_int_equal(truncate("wrong/merges.txt", INT64_C(1) << 30), 0); /* sparse */
    ends(1, "wrong/merges.txt: ", "tokenize --tokenizer gpt2:wrong");
    assert_int_equal(unlink("wrong/merges.txt"), 0);
    ends(1, "wrong/merges.txt: cannot open", "tokenize --tokenizer gpt2:wrong");
    ends(1, "nowhere: has neither a tokenizer.json nor a vocab.json with a merges.txt", "tokenize --tokenizer gpt2:nowhere");
    put("text", "text");
    ends(2, "no tokenizer is called \"gpt2\": known are byte, char, gpt2:DIR", "data prepare text --out x --tokenizer gpt2");
    ends(2, "no tokenizer is called \"byte:x\"", "data prepare text --out x --tokenizer byte:x");
    ends(2, "(byte) has no special tokens", "tokenize --tokenizer byte --allow-special");
    ends(2, "unrecognized option", "detokenize --tokenizer byte --allow-special");
    json_decref(meta);
}

/* Other kinds of tokenizer.json are refused by the field that tells; what does not matter for ids may be anything. */
static void other_kinds_refused(void **state)
{
    (void)state;
    static const struct {
        const char *change, *says; /* NULL: it is fine */
    } cases[] = {
        {"{\"model\": {\"type\": \"Unigram\"}}", "model.type: is \"Unigram\", and not \"BPE\": this is another kind"},
        {"{\"model\": {\"dropout\": 0.1}}", "model.dropout: is 0.1"},
        {"{\"model\": {\"continuing_subword_prefix\": \"##\"}}", "model.continuing_subword_prefix: is \"##\""},
        {"{\"model\": {\"end_of_word_suffix\": \"</w>\"}}", "model.end_of_word_suffix: is \"</w>\""},
        {"{\"model\": {\"end_of_word_suffix\": null}}", NULL},
        {"{\"model\": {\"byte_fallback\": true}}", "model.byte_fallback: is true, and not false"},
        {"{\"model\": {\"ignore_merges\": true}}", "model.ignore_merges: is true"},
        {"{\"model\": {\"unk_token\": \"<|endoftext|>\"}}", NULL}, /* every byte is known */
        {"{\"model\": {\"vocab\": null}}", "vocab: is missing"},
        {"{\"model\": {\"merges\": null}}", "merges: a list is needed"},
        {"{\"model\": []}", "model.type: is missing"},
        {"{\"normalizer\": {\"type\": \"NFC\"}}", "normalizer: is {\"type\":\"NFC\"}, and not null"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\"}}", "pre_tokenizer.type: is \"Sequence\""},
        {"{\"pre_tokenizer\": null}", "pre_tokenizer.type: is missing"},
        {"{\"pre_tokenizer\": {\"add_prefix_space\": true}}", "pre_tokenizer.add_prefix_space: is true, and not false"},
        {"{\"pre_tokenizer\": {\"use_regex\": false}}", "pre_tokenizer.use_regex: is false"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\"}}", "post_processor.type: is \"TemplateProcessing\""},
        {"{\"post_processor\": null}", NULL},
        {"{\"decoder\": {\"type\": \"Metaspace\"}}", "decoder.type: is \"Metaspace\""},
        {"{\"decoder\": null}", "decoder.type: is missing"},
        {"{\"truncation\": {\"max_length\": 3}}", NULL},
        {"{\"added_tokens\": null}", NULL},
        {"{\"added_tokens\": [{\"id\": 0, \"content\": \"x\", \"special\": false}]}", "added_tokens: special: is false"},
        {"{\"added_tokens\": [{\"id\": 0, \"content\": \"x\"}]}", "added_tokens: special: is missing"},
        {"{\"added_tokens\": [{\"content\": \"x\", \"special\": true}]}", "added_tokens: id: is missing"},
        {"{\"added_tokens\": [{\"id\": -1, \"content\": \"x\", \"special\": true}]}", "added_tokens: id: is -1"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"x\", \"special\": true, \"lstrip\": true}]}", "lstrip: is true"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"<a>\", \"special\": true}, "
         "{\"id\": 293, \"content\": \"<a>\", \"special\": true}]}",
         "added_tokens: content: \"<a>\" is there twice"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"<a b>\", \"special\": true}]}",
         "special_tokens: \"<a b>\" has a blank in it"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"\", \"special\": true}]}", "the token of id 292 is an empty text"},
        {"{\"added_tokens\": [{\"id\": 104, \"content\": \"h\", \"special\": true}]}", "\"h\" is also ordinary text"},
        {"{\"added_tokens\": [{\"id\": 104, \"content\": \"new\", \"special\": true}]}",
         "\"new\" has the id 104, which is that of \"h\""},
        {"{\"added_tokens\": [7]}", "added_tokens: id: is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        json_t *meta = small_meta(), *root = small_tokenizer_json(meta), *change = json_loads(cases[i].change, 0, NULL);
        assert_non_null(change);
        json_object_update_recursive(root, change);
        tokenizer_json_write("kind", root);
        Tokenizer *t = tokenizer_load("gpt2:kind", &e);
        if (cases[i].says ? t || !strstr(e.text, cases[i].says) || strncmp(e.text, "kind", 4) != 0 : !t)
            fail_msg("%s: wanted \"%s\", got \"%s\"", cases[i].change, cases[i].says ? cases[i].says : "no error", e.text);
        tokenizer_destroy(t);
        json_decref(meta);
        json_decref(root);
        json_decref(change);
    }
}

/* A data folder and its checkpoints have all of the tokenizer in them: its files may go. */
static void files_may_go(void **state)
{
    (void)state;
    json_t *meta = small_meta();
    pair_write("gone", meta);
    json_decref(meta);
    FILE *f = fopen("text", "w");
    for (int i = 0; i < 500; i++)
        fprintf(f, "hello world<|endoftext|>\n");
    fclose(f);
    const Output *o = works("data prepare text --tokenizer gpt2:gone --allow-special --out data --val-fraction 0.5");
    assert_non_null(strstr(o->out, "train.bin  1000 tokens")); /* hello, world, the end, \n: 250 times */
    o = works("data prepare text --tokenizer gpt2:gone --out data-2 --val-fraction 0.5");
    assert_non_null(strstr(o->out, "train.bin  4000 tokens")); /* 14 for <|endoftext|>\n: |>\n are |, >, \n */
    works("data prepare text --tokenizer gpt2:gone --separator <|endoftext|> --out data-3 --val-fraction 0");
    json_t *facts = json_read("data-3/meta.json", &(Error){0});
    assert_int_equal(json_integer_value(json_object_get(facts, "separator")), SMALL_VOCAB - 1);
    assert_int_equal(json_integer_value(json_object_get(facts, "train_documents")), 501); /* the last is a line end */
    json_decref(facts);
    assert_int_equal(system("rm -r gone"), 0);
    works("train %s --max-iters 2 --out-dir run", TINY);
    assert_int_equal(system("rm -r data"), 0);
    o = works("sample --out-dir run --threads 1 --max-new-tokens 1 --prompt hello<|endoftext|>");
    assert_non_null(strstr(o->out, "hello<|endoftext|>"));
    works("sample --out-dir run --threads 1 --max-new-tokens 1 --allow-special --prompt <|endoftext|>");
    works("tokenize --tokenizer run/step-2 --allow-special");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_files_say_the_same), cmocka_unit_test(merges_in_other_clothes),
        cmocka_unit_test(pairs_refused),          cmocka_unit_test(byte_missing),
        cmocka_unit_test(files_refused),          cmocka_unit_test(other_kinds_refused),
        cmocka_unit_test(files_may_go),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
