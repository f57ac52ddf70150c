/* What the stub and the load generator share: growing buffers, and finding members in small JSON texts.

   Both trust the texts they make themselves and look for the others with `member`, which finds a name wherever it is:
   no argument or result of these programs holds a quoted name of the envelope. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LEGACY "2025-11-25"
#define OLDER "2025-06-18"
#define MODERN "2026-07-28"
#define META "io.modelcontextprotocol/"
#define READ_MAX 262144

struct buffer {
    char *bytes;
    size_t at, end, room; /* what is held is bytes[at..end], with a NUL behind it */
};

static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline char *start(struct buffer *b) { return b->bytes + b->at; }
static inline size_t held(const struct buffer *b) { return b->end - b->at; }

/* Room for `size` more bytes and a NUL; gives the place where they go. */
static inline char *reserve(struct buffer *b, size_t size) {
    if (b->at && b->at == b->end) b->at = b->end = 0;
    if (b->end + size + 1 > b->room && b->at) {
        memmove(b->bytes, start(b), held(b));
        b->end -= b->at;
        b->at = 0;
    }
    if (b->end + size + 1 > b->room) {
        b->room = (b->end + size + 1) * 2;
        if (!(b->bytes = realloc(b->bytes, b->room))) fail("out of memory");
    }
    return b->bytes + b->end;
}

static inline void append(struct buffer *b, const char *bytes, size_t size) {
    memcpy(reserve(b, size), bytes, size);
    b->end += size;
    b->bytes[b->end] = 0;
}

static inline void print(struct buffer *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    vsnprintf(reserve(b, size), size + 1, format, arguments);
    va_end(arguments);
    b->end += size;
}

static inline void release(struct buffer *b) {
    free(b->bytes);
    *b = (struct buffer){0};
}

static inline void empty(struct buffer *b) { b->at = b->end = 0; }

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The value of the first member `name` (without quotes) of a NUL-ended text, or NULL. */
static inline const char *member(const char *text, const char *name) {
    char quoted[128];
    size_t size = snprintf(quoted, sizeof quoted, "\"%s\"", name);
    while ((text = strstr(text, quoted))) {
        text += size;
        const char *at = text + strspn(text, " \t\r\n");
        if (*at == ':') return at + 1 + strspn(at + 1, " \t\r\n");
    }
    return NULL;
}

/* How long the string (with its quotes), number or word at `value` is. */
static inline int extent(const char *value) {
    if (*value != '"') return strcspn(value, ",}] \t\r\n");
    const char *at = value + 1;
    while (*at && *at != '"') at += *at == '\\' ? 2 : 1;
    return at + 1 - value;
}

static inline long number(const char *text, const char *name, long otherwise) {
    const char *value = member(text, name);
    return value ? strtol(value, NULL, 10) : otherwise;
}

/* Whether the value is the string `expected`. */
static inline bool is_text(const char *value, const char *expected) {
    size_t size = strlen(expected);
    return value && *value == '"' && !strncmp(value + 1, expected, size) && value[1 + size] == '"';
}

/* The value of a header in a head that ends in a blank line, or NULL. */
static inline const char *header(const char *head, const char *name) {
    size_t size = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && strncmp(line, "\r\n\r\n", 4); line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, size) && line[2 + size] == ':')
            return line + 3 + size + strspn(line + 3 + size, " \t");
    return NULL;
}

static inline bool has_token(const char *value, const char *token) {
    if (!value) return false;
    size_t size = strlen(token);
    for (const char *end = strstr(value, "\r\n"); value + size <= end; value++)
        if (!strncasecmp(value, token, size)) return true;
    return false;
}
