/* libFuzzer: any bytes as a config.json. What is accepted must be a configuration that can exist. */
#include "base/json.h"
#include "model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    ModelConfig c;
    Error e = {0};
    json_t *root = json_parse((const char *)bytes, size, "fuzz", &e);
    if (root && model_config_parse(root, &c, &e)) {
        require(model_config_check(&c, &e) && !e.set);
        int64_t padded = model_config_padded_vocab(&c);
        require(padded >= c.vocab_size && padded - c.vocab_size < c.vocab_multiple && padded % c.vocab_multiple == 0);
        require(model_config_parameters(&c) >= padded * c.n_embd && c.n_kv_head == c.n_head);
    } else {
        require(e.set && !e.usage);
    }
    json_decref(root);
    return 0;
}
