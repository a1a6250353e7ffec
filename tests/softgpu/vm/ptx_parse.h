/* The parser's state and what decoding an instruction needs of it.
 *
 * Errors are sticky: the first is kept, and from then on every token is the empty one that ends the text, so that all loops end
 * and nobody has to ask in between. */
#ifndef SOFTGPU_PTX_PARSE_H
#define SOFTGPU_PTX_PARSE_H

#include "tests/softgpu/vm/ptx_lex.h"

/* `.reg .b32 %r<12>;` (count 12) or `.reg .pred p;` (count -1: one of that very name). */
typedef struct Declared {
    const char *name;
    int count, first; /* first: number of its first register */
    int depth;        /* of the braces around it             */
} Declared;

typedef struct Label {
    const char *name;
    int at; /* index into the code */
} Label;

typedef struct Parser {
    VmModule *module;
    VmKernel *kernel; /* NULL between kernels */
    Arena *arena;
    int at;   /* the next token  */
    int line; /* of the last one */
    const char *error;
    Declared *declared;
    int n_declared, depth;
    Label *labels;
    int n_labels;
    const char **targets; /* of each instruction: the label it branches to, or NULL */
    InsnText loc;         /* the source lines of the last .loc */
    int call, n_calls;    /* the call that is being put in place, 0: none; and how many there were */
    int call_depth;
} Parser;

typedef enum OperandKind {
    OPERAND_REGISTER,
    OPERAND_INTEGER,
    OPERAND_FLOAT,  /* number: the bits of a float, 0f3F800000  */
    OPERAND_DOUBLE, /* number: the bits of a double             */
    OPERAND_SYMBOL, /* symbol + number                          */
    OPERAND_ADDRESS,
    OPERAND_VECTOR,
    OPERAND_CLOCK, /* %clock, %clock64, %globaltimer */
    OPERAND_SINK   /* _ */
} OperandKind;

typedef struct Operand {
    OperandKind kind;
    int reg;            /* of a register, of an address's base; -1: none */
    int second;         /* q of p|q; -1: none                            */
    bool negated;       /* !p                                            */
    int64_t number;     /* constant, or an address's constant part       */
    const char *symbol; /* or NULL                                       */
    int n;              /* of a vector                                   */
    struct Operand *parts;
} Operand;

/* One instruction being decoded. */
enum { MAX_PARTS = 16, PART_SIZE = 24, MAX_SOURCE_OPERANDS = 8 };
typedef struct Decoder {
    Parser *p;
    Insn *i;
    InsnText *t;
    const char *opcode;
    char part[MAX_PARTS][PART_SIZE]; /* the opcode at its dots: "ld" "global" "v4" "f32" */
    int n_parts;
    Operand operands[MAX_SOURCE_OPERANDS];
    int n;
} Decoder;

/* Records an error at the current line, if there is none. */
void parse_error(Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- Tokens (ptx_token.c) ------------------------------------------------------------------------------------------- */

/* The text of the next token, "" at the end; the same, moving on; is it this text, and if so, moving on. */
const char *token_peek(const Parser *p);
const char *token_next(Parser *p);
bool token_is(const Parser *p, const char *text);
bool token_accept(Parser *p, const char *text);
/* Moves past the text, past a number; anything else is an error. */
void token_expect(Parser *p, const char *text);
long integer_next(Parser *p);
/* To the end of the line; past the brace that closes the one at hand. */
void line_skip(Parser *p);
void braces_skip(Parser *p);

/* ---- Declarations (ptx_declare.c) ----------------------------------------------------------------------------------- */

/* ".align 16 .b8 name[64];" behind .global, .const, .shared, .local; ".b32 %r<12>;" behind .reg; a parameter of the kernel. */
void variable_read(Parser *p, Space space);
void registers_read(Parser *p);
void param_read(Parser *p);
/* Gives a shared variable its place in the kernel's shared memory: its offset. */
uint32_t shared_place(Parser *p, const Symbol *s);

/* Declares a register of that very name in the scope at hand. Returns its number. */
int register_declare(Parser *p, const char *name, int size);

/* ---- Statements (ptx_parse.c) and calls (ptx_call.c) ----------------------------------------------------------------- */

/* Whatever comes next in a body; the end of a scope: what was declared in it is forgotten. */
void statement_read(Parser *p);
void scope_close(Parser *p);
/* A new instruction at the end of the code, which branches to the label (NULL: none). */
void instruction_add(Parser *p, const char *label);
void label_add(Parser *p, const char *name);
/* A label's name within the call that is being put in place. */
const char *label_name(Parser *p, const char *name);

/* "(result) name (params) { body }" behind .func. */
void function_read(Parser *p);
/* ".b64 name;" behind .param in a body. */
void call_param_read(Parser *p);
/* "(result), name, (arguments);" behind call.uni. */
void call_read(Parser *p);
/* The label at which a call ends: what ret branches to. NULL in the kernel itself. */
const char *call_end(Parser *p);

/* ---- Operands (ptx_operand.c) --------------------------------------------------------------------------------------- */

void operand_read(Parser *p, Operand *o);
/* "12", "0x1F", "12U", "0f3F800000", "1.5". False: text is no number. And -x of such a number. */
bool number_read(const char *text, Operand *o);
void number_negate(Operand *o);

/* Bytes of a type name with or without its dot: "f32" 4, "b16" 2, "bf16x2" 4, "pred" 0; -1 when it is none. */
int type_bytes(const char *name);

/* New registers of the kernel: a variable, and a constant (one for each value and size). */
int register_new(Parser *p, RegisterKind kind, int size, uint64_t value);
int register_constant(Parser *p, int size, uint64_t value);

/* Where a symbol of the kernel or module is: its space, and the constant that stands for it; dynamic: it is extern shared memory.
 * An unknown name is an error. */
typedef struct Place {
    Space space;
    uint64_t value;
    bool dynamic;
} Place;
Place symbol_place(Parser *p, const char *name);

/* Fills d->i and d->t from the opcode and the operands. What is unknown is an error. (ptx_decode.c) */
void ptx_decode(Decoder *d);

/* ---- For the decoders (ptx_decode.c) -------------------------------------------------------------------------------- */

/* Has the opcode the part (".shared")? */
bool has(const Decoder *d, const char *part);
/* The last part: the type. */
const char *type_name(const Decoder *d);
/* Adds an output or an input of `size` bytes (0: predicate) to the instruction. Inputs may be constants. */
void add_out(Decoder *d, const Operand *o, int size);
void add_in(Decoder *d, const Operand *o, int size);
void add_register(Decoder *d, int reg);
void add_constant(Decoder *d, int size, uint64_t value);
/* All of a vector's parts; a lone register counts as a vector of one. */
void add_vector_out(Decoder *d, const Operand *o, int n, int size);
void add_vector_in(Decoder *d, const Operand *o, int n, int size);
/* The base register of [address]; imm becomes its constant part, and the space is filled in when the opcode has none. */
void add_address(Decoder *d, const Operand *o);
/* The space that the opcode names, generic when it names none. */
Space space_of(const Decoder *d);
/* Sets the instruction's function by its name in the tables of ops, and its class. */
void set_op(Decoder *d, const char *name, VmClass class);
/* "instruction not known: ..." */
void unknown(Decoder *d);

/* Memory, warp and tensor instructions; false when the mnemonic is none of theirs. (ptx_decode_memory.c, ptx_decode_warp.c) */
bool decode_memory(Decoder *d);
bool decode_warp(Decoder *d);

#endif
