/* A client that costs next to nothing: sessions that each call one tool over and over, and what that cost the proxy.

   `load http|sse|ws PORT [options]`, `load stdio [options] -- COMMAND ARG…`; prints one JSON object. All sessions are
   opened and warmed first, then the clock of each process `--pid` is read, the calls are made, and it is read again. Every
   reply must bear the id of its call and the text asked for, every progress notification its own token and the next
   number; anything else ends the run with exit code 1 and what was seen.

   The tool is `echo`, or `--tool NAME` where a proxy has given it another name. With `--tools N` each call is a
   `tools/list` instead, whose reply must have so many tools.

   A session goes along `enum phase`; over HTTP it has a connection for its requests and may have one for its stream. Its
   requests are numbered by count * slots + slot, so on a pipe that all share a reply names its slot. With `--tokens FILE`
   each request shows the next line of the file, from line `--token-at` on and from the first one after the last.

   With `--second-port` every second session is opened at that port instead. With `--workers N` each of so many processes
   at one port gets its share of the sessions, by the tags of their ids: one that is opened where there are enough is
   ended, and its connection made again. With `--crossed` each call is made in a session of another process, over the
   connection to its own: it has to be passed on.

   With `--parts N` the calls are made in so many parts, and the CPU time is that of the part that took the least. */

#include "wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PIDS_MAX 64
#define OPENING_MAX 32 /* sessions opened at a time: below what any peer's backlog holds */
#define REDIAL_US 2000 /* until all processes wait for a connection again, not only the one that had the last */
#define WORKERS_MAX 16
#define FAILURE_SHOWN_MAX 600
#define PARTS 3 /* of what is measured beside idle sessions: the middle one counts, as what is said to keep thousands of
                   them alive, every quarter of a minute, may fall into one */
#define REST_AFTER_OPENING_MS 1500 /* a proxy may still tidy up after the last of thousands */

enum transport { HTTP, SSE, WS, STDIO };
enum phase { NEW, ENDPOINT, INITIALIZE, INITIALIZED, STREAM, WARM, READY, RUN, LEAVING, IDLE, DONE };
static const char *const PHASES[] = {"new", "endpoint", "initialize", "initialized", "stream", "warm", "ready", "run",
                                     "leaving", "idle", "done"};

struct session;

struct connection {
    int fd;
    struct session *session;
    bool is_stream;
    struct buffer in;
    enum { HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, UNTIL_CLOSE, FRAMES } state;
    bool is_events, is_closing;
    int status;
    size_t left;
    struct buffer body, event, line;
    char event_name[16];
};

struct session {
    enum phase phase;
    long slot, request, calls_left;
    int64_t sent_ns;
    long progress;
    bool is_surplus, is_answered, is_accepted; /* the process has enough; what was sent last: replied to, its POST through */
    char id[300], own_id[300], endpoint[300];
    struct connection requests, stream;
};

static struct {
    enum transport transport;
    const char *path, *tool;
    int port;
    bool is_modern, is_sse, is_churn, is_crossed;
    long second_port, workers, parts, sessions, calls, warm, size, events, pace_ms, idle, rest_ms, timeout_s;
    long token_at, tools;
    int pids[PIDS_MAX], pid_count;
} options = {.path = "/mcp", .tool = "echo", .sessions = 1, .calls = 1000, .warm = 20, .size = 64, .rest_ms = 1000, .timeout_s = 120};

static int epoll_fd;
static struct session *sessions;
static long slots, opened, ready, done, opening;
static bool is_measuring;
static int64_t *latencies, *delays;
static long latency_count, delay_count;
static struct session pipe_session; /* the connection that the slots of a pipe share */

static void advance(struct session *s);

static void give_up(struct session *s, const char *why, const char *text) {
    fail("load: session %ld, %s, request %ld: %s: %.*s", s->slot, PHASES[s->phase], s->request, why, FAILURE_SHOWN_MAX,
         text ? text : "");
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static void watch(struct connection *c) {
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) fail("load: cannot watch: %s", strerror(errno));
}

static int port_of(const struct session *s) {
    return options.second_port && s->slot % 2 ? options.second_port : options.port;
}

static void dial(struct connection *c) {
    int port = port_of(c->session);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons(port);
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("load: cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->state = HEAD;
    empty(&c->in);
    watch(c);
}

static void hang_up(struct connection *c) {
    if (c->fd > 0) close(c->fd);
    c->fd = 0;
    release(&c->in);
    release(&c->body);
    release(&c->event);
    release(&c->line);
}

static void transmit(int fd, struct buffer *b) {
    while (held(b)) {
        ssize_t size = write(fd, start(b), held(b));
        if (size < 0 && errno == EAGAIN) {
            usleep(100);
            continue;
        }
        if (size < 0) fail("load: cannot write: %s", strerror(errno));
        b->at += size;
    }
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static const char *era_headers(const char *method, const struct session *s) {
    static char headers[256];
    bool is_call = !strcmp(method, "tools/call");
    if (options.is_modern)
        snprintf(headers, sizeof headers, "mcp-protocol-version: " MODERN "\r\nmcp-method: %s\r\n%s%s%s", method,
                 is_call ? "mcp-name: " : "", is_call ? options.tool : "", is_call ? "\r\n" : "");
    else
        snprintf(headers, sizeof headers, "%s", s->phase > INITIALIZE ? "mcp-protocol-version: " LEGACY "\r\n" : "");
    return headers;
}

static char **tokens;
static long token_count;

static void read_tokens(const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) fail("load: cannot read %s: %s", path, strerror(errno));
    for (ssize_t size; (size = getline(&line, &room, file)) > 0;) {
        line[strcspn(line, "\n")] = 0;
        tokens = realloc(tokens, (token_count + 1) * sizeof *tokens);
        tokens[token_count++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (!token_count) fail("load: %s has no token", path);
}

static void send_http(struct session *s, const char *verb, const char *method, struct buffer *body) {
    static struct buffer out;
    struct connection *c = *verb == 'G' ? &s->stream : &s->requests;
    c->session = s;
    c->is_stream = c == &s->stream;
    if (c->fd <= 0) dial(c);
    empty(&out);
    print(&out, "%s %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept: %s\r\n", verb,
          *s->endpoint ? s->endpoint : options.path, port_of(s),
          *verb == 'G' ? "text/event-stream" : "application/json, text/event-stream");
    if (options.transport == HTTP) print(&out, "%s", era_headers(method, s));
    if (*s->id) print(&out, "mcp-session-id: %s\r\n", s->id);
    if (token_count) print(&out, "authorization: Bearer %s\r\n", tokens[options.token_at++ % token_count]);
    if (*verb == 'P') print(&out, "content-type: application/json\r\ncontent-length: %zu\r\n", held(body));
    append(&out, "\r\n", 2);
    if (*verb == 'P') append(&out, start(body), held(body));
    transmit(c->fd, &out);
}

static void send_frame(struct session *s, int opcode, struct buffer *body) {
    static struct buffer out;
    size_t size = body ? held(body) : 0;
    empty(&out);
    unsigned char head[8] = {0x80 | opcode, 0x80 | (size < 126 ? size : 126), size >> 8, size};
    append(&out, (char *)head, size < 126 ? 2 : 4);
    append(&out, "\0\0\0\0", 4); /* a mask of zeros leaves the text as it is */
    if (size) append(&out, start(body), size);
    transmit(s->requests.fd, &out);
}

static void send_message(struct session *s, const char *method, struct buffer *body) {
    s->is_answered = s->is_accepted = false;
    if (!options.is_churn || s->phase == INITIALIZE) s->sent_ns = now_ns();
    if (options.transport == HTTP || options.transport == SSE) {
        send_http(s, "POST", method, body);
    } else if (options.transport == WS) {
        send_frame(s, 1, body);
    } else {
        append(body, "\n", 1);
        transmit(pipe_session.stream.fd, body);
    }
}

static void send_call(struct session *s) {
    static struct buffer body;
    empty(&body);
    s->progress = 0;
    s->request += slots;
    if (options.tools) {
        print(&body, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/list\"}", s->request);
        return send_message(s, "tools/list", &body);
    }
    print(&body, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"arguments\":{"
          "\"message\":\"m%ld\",\"size\":%ld", s->request, options.tool, s->request, options.size);
    if (options.events) print(&body, ",\"events\":%ld,\"pace_ms\":%ld", options.events, options.pace_ms);
    if (options.is_sse) print(&body, ",\"sse\":true");
    append(&body, "}", 1);
    if (options.events || options.is_modern) print(&body, ",\"_meta\":{");
    if (options.events) print(&body, "\"progressToken\":%ld", s->request);
    if (options.is_modern)
        print(&body, "%s\"" META "protocolVersion\":\"" MODERN "\",\"" META "clientCapabilities\":{},\"" META
              "clientInfo\":{\"name\":\"load\",\"version\":\"1\"}", options.events ? "," : "");
    print(&body, "%s}}", options.events || options.is_modern ? "}" : "");
    send_message(s, "tools/call", &body);
}

static void send_text(struct session *s, const char *method, const char *format, long id) {
    static struct buffer body;
    empty(&body);
    if (id >= 0) s->request = id;
    print(&body, format, id);
    send_message(s, method, &body);
}

#define INITIALIZING                                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"" LEGACY   \
    "\",\"capabilities\":{},\"clientInfo\":{\"name\":\"load\",\"version\":\"1\"}}}"
#define READIED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"

/* --- a session's way ---------------------------------------------------------------------------------------------- */

static void finish(struct session *s) {
    if (s->phase == IDLE || s->phase == DONE) return;
    if (s->phase < READY) opening--;
    s->phase = DONE;
    done++;
}

static void next_call(struct session *s) {
    if (s->calls_left > 0) {
        s->calls_left--;
        if (options.is_churn && !options.is_modern) {
            s->phase = INITIALIZE;
            s->id[0] = 0;
            send_text(s, "initialize", INITIALIZING, s->request + slots);
        } else {
            send_call(s);
        }
    } else if (s->phase == WARM || (options.is_churn && !is_measuring)) {
        s->phase = READY;
        opening--;
        ready++;
    } else {
        finish(s);
    }
}

static size_t tag_size(const char *id) {
    if (!strchr(id, '.')) fail("load: a session id without a tag: %s", id);
    return strcspn(id, ".") + 1;
}

/* Whether the process that has opened the session is to have more of them. */
static bool take_place(struct session *s) {
    static struct { char tag[16]; long count; } workers[WORKERS_MAX];
    size_t i = 0, size = tag_size(s->id);
    while (i < WORKERS_MAX && *workers[i].tag && strncmp(workers[i].tag, s->id, size)) i++;
    if (i == WORKERS_MAX || size >= sizeof workers[i].tag) give_up(s, "another process", s->id);
    memcpy(workers[i].tag, s->id, size);
    bool has_room = workers[i].count < (options.sessions + options.workers - 1) / options.workers;
    workers[i].count += has_room;
    return has_room;
}

/* What comes next, after what was sent last is through. */
static void advance(struct session *s) {
    bool is_idle = s->slot >= options.sessions;
    switch (s->phase) {
    case NEW:
        s->calls_left = options.is_churn ? 2 : options.warm;
        if (options.transport == SSE || options.transport == WS) {
            s->phase = ENDPOINT;
            if (options.transport == SSE) send_http(s, "GET", "", NULL);
            return;
        }
        if (options.is_modern || (options.transport == STDIO && s->slot)) {
            s->phase = WARM;
            return next_call(s);
        }
        if (options.is_churn) return next_call(s);
        /* fallthrough */
    case ENDPOINT:
        s->phase = INITIALIZE;
        return send_text(s, "initialize", INITIALIZING, s->slot);
    case INITIALIZE:
        s->phase = INITIALIZED;
        send_text(s, "notifications/initialized", READIED, -1);
        if (options.transport == HTTP || options.transport == SSE) return; /* it is accepted first */
        /* fallthrough */
    case INITIALIZED:
        if (options.is_churn) {
            s->phase = LEAVING;
            return send_http(s, "DELETE", "", NULL);
        }
        if (options.workers && !take_place(s)) {
            s->is_surplus = true;
            s->phase = LEAVING;
            return send_http(s, "DELETE", "", NULL);
        }
        if (is_idle) {
            s->phase = STREAM;
            hang_up(&s->requests);
            return send_http(s, "GET", "", NULL);
        }
        s->phase = WARM;
        return next_call(s);
    case STREAM:
        s->phase = IDLE;
        opening--;
        ready++;
        return;
    case LEAVING:
        if (s->is_surplus) {
            hang_up(&s->requests);
            usleep(REDIAL_US);
            s->is_surplus = false;
            s->id[0] = 0;
            s->phase = NEW;
            return advance(s);
        }
        if (!options.is_churn) return finish(s);
        latencies[latency_count] = now_ns() - s->sent_ns;
        if (is_measuring) latency_count++;
        return next_call(s);
    case WARM:
    case RUN:
        return next_call(s);
    default:
        return;
    }
}

static void count_reply(struct session *s) {
    s->is_answered = true;
    if (is_measuring && !options.is_churn) latencies[latency_count++] = now_ns() - s->sent_ns;
    if (s->phase >= WARM && s->progress != options.events) give_up(s, "progress notifications missing", "");
}

static void check_result(struct session *s, const char *text) {
    char expected[64];
    if (options.tools) {
        long found = 0;
        for (const char *at = text; (at = strstr(at, "\"inputSchema\"")); at++) found++;
        if (found != options.tools) give_up(s, "another number of tools", text);
        return;
    }
    int size = snprintf(expected, sizeof expected, "\"m%ld|", s->request);
    const char *found = strstr(text, expected);
    if (!found) give_up(s, "not the result of its call", text);
    size_t filling = strspn(found + size, "x");
    if ((long)filling != options.size || found[size + filling] != '"') give_up(s, "a result of another size", text);
}

/* A whole JSON-RPC message, NUL-ended, from whichever transport. */
static void take_message(struct session *s, char *text) {
    const char *method = member(text, "method"), *id = member(text, "id");
    if (method && id) {
        if (s->phase == IDLE || s->phase == STREAM) return;
        give_up(s, "a request of the server", text);
    }
    if (method) {
        if (!is_text(method, "notifications/progress")) return;
        long token = number(text, "progressToken", -1), progress = number(text, "progress", -1);
        if (options.transport == STDIO && token >= 0) s = &sessions[token % slots];
        if (token != s->request) give_up(s, "progress of another call", text);
        if (progress != ++s->progress) give_up(s, "progress out of order", text);
        const char *sent = member(text, "message");
        if (is_measuring && options.pace_ms && sent) delays[delay_count++] = now_ns() - strtoll(sent + 1, NULL, 10);
        return;
    }
    if (!id || s->phase == IDLE) give_up(s, "neither a notification nor a reply", text);
    long answered = strtol(*id == '"' ? id + 1 : id, NULL, 10);
    if (options.transport == STDIO) s = &sessions[answered % slots];
    if (answered != s->request || s->is_answered) give_up(s, "the reply to another request", text);
    if (member(text, "error") || !member(text, "result")) give_up(s, "an error", text);
    if (s->phase == WARM || s->phase == RUN) check_result(s, text);
    count_reply(s);
    if (options.transport == SSE ? s->is_accepted : options.transport != HTTP) advance(s);
}

/* --- framings ----------------------------------------------------------------------------------------------------- */

static void take_event(struct connection *c) {
    struct session *s = c->session;
    if (!strcmp(c->event_name, "endpoint")) {
        char *url = start(&c->event), *path = strstr(url, "://");
        path = path ? strchr(path + 3, '/') : url;
        snprintf(s->endpoint, sizeof s->endpoint, "%s", path);
        advance(s);
    } else if (held(&c->event)) {
        take_message(s, start(&c->event));
    }
    empty(&c->event);
    c->event_name[0] = 0;
}

static void take_event_line(struct connection *c, char *line, size_t size) {
    if (size && line[size - 1] == '\r') line[--size] = 0;
    if (!size) return take_event(c);
    size_t skip = size > 5 && line[5] == ' ' ? 6 : 5;
    if (!strncmp(line, "data:", 5)) {
        if (held(&c->event)) append(&c->event, "\n", 1);
        append(&c->event, line + skip, size - skip);
    } else if (!strncmp(line, "event: ", 7)) {
        snprintf(c->event_name, sizeof c->event_name, "%s", line + 7);
    }
}

static void take_events(struct connection *c, char *bytes, size_t size) {
    for (char *end; (end = memchr(bytes, '\n', size)); size -= end + 1 - bytes, bytes = end + 1) {
        append(&c->line, bytes, end - bytes);
        take_event_line(c, start(&c->line), held(&c->line));
        empty(&c->line);
    }
    append(&c->line, bytes, size);
}

static void end_response(struct connection *c) {
    struct session *s = c->session;
    c->state = HEAD;
    if (c->is_stream) {
        if (s->phase != DONE && s->phase != LEAVING) give_up(s, "its stream ended", "");
        return;
    }
    if (!c->is_events && held(&c->body) && c->status == 200 && s->phase != LEAVING && options.transport == HTTP)
        take_message(s, start(&c->body));
    empty(&c->body);
    if (c->is_closing) hang_up(c);
    bool is_request = s->phase != INITIALIZED && s->phase != LEAVING;
    s->is_accepted = true;
    if (s->is_answered || !is_request) advance(s);
    else if (options.transport == HTTP) give_up(s, "a response without the reply", "");
}

static void take_body(struct connection *c, char *bytes, size_t size) {
    if (c->is_events) take_events(c, bytes, size);
    else append(&c->body, bytes, size);
}

static void take_head(struct connection *c, char *head) {
    struct session *s = c->session;
    const char *length = header(head, "content-length"), *id = header(head, "mcp-session-id");
    c->status = atoi(head + 9);
    c->is_events = has_token(header(head, "content-type"), "text/event-stream");
    c->is_closing = has_token(header(head, "connection"), "close");
    if (id && s->phase == INITIALIZE) snprintf(s->id, sizeof s->id, "%.*s", (int)strcspn(id, "\r"), id);
    if (c->status == 101) {
        c->state = FRAMES;
        return advance(s);
    }
    if ((c->status < 200 || c->status > 299) && s->phase != LEAVING) give_up(s, "refused", head);
    if (has_token(header(head, "transfer-encoding"), "chunked")) c->state = CHUNK_SIZE;
    else if (length || c->status == 204) c->state = SIZED, c->left = length ? strtoul(length, NULL, 10) : 0;
    else c->state = UNTIL_CLOSE, c->is_closing = true;
    if (c->is_stream && s->phase == STREAM) {
        if (!c->is_events) give_up(s, "no event stream", head);
        advance(s);
    }
    if (c->state == SIZED && !c->left) end_response(c);
}

/* One step over what has come in; false: more is needed. */
static bool take_http(struct connection *c) {
    char *at = start(&c->in), *end;
    size_t size = held(&c->in);
    switch (c->state) {
    case HEAD:
        if (!(end = memmem(at, size, "\r\n\r\n", 4))) return false;
        c->in.at += end + 4 - at;
        static struct buffer head; /* of its own, NUL-ended: the connection may be gone before the head is read */
        empty(&head);
        append(&head, at, end + 4 - at);
        take_head(c, start(&head));
        return true;
    case CHUNK_SIZE:
        if (!(end = memmem(at, size, "\r\n", 2))) return false;
        c->left = strtoul(at, NULL, 16);
        c->in.at += end + 2 - at;
        c->state = c->left ? CHUNK : TRAILER;
        return true;
    case SIZED:
    case CHUNK:
    case UNTIL_CLOSE:
        if (!size) return false;
        if (c->state != UNTIL_CLOSE && size > c->left) size = c->left;
        c->in.at += size;
        c->left -= size;
        take_body(c, at, size);
        if (c->fd > 0 && !c->left && c->state == CHUNK) c->state = CHUNK_END;
        if (c->fd > 0 && !c->left && c->state == SIZED) end_response(c);
        return true;
    case CHUNK_END:
    case TRAILER:
        if (!(end = memmem(at, size, "\r\n", 2))) return false;
        c->in.at += end + 2 - at;
        if (c->state == CHUNK_END) c->state = CHUNK_SIZE;
        else if (end == at) end_response(c);
        return true;
    default:
        return false;
    }
}

static bool take_frame(struct connection *c) {
    unsigned char *at = (unsigned char *)start(&c->in);
    size_t size = held(&c->in), head = 2, length;
    if (size < 2) return false;
    length = at[1] & 127;
    if (length == 126) head = 4;
    if (length == 127) head = 10;
    if (size < head) return false;
    if (head > 2) length = 0;
    for (size_t i = 2; i < head; i++) length = length << 8 | at[i];
    if (size < head + length) return false;
    c->in.at += head + length;
    int opcode = at[0] & 15;
    if (opcode == 9) {
        send_frame(c->session, 10, NULL);
    } else if (opcode <= 1) {
        append(&c->body, (char *)at + head, length);
        if (!(at[0] & 128)) return true;
        static struct buffer message;
        struct buffer kept = message;
        message = c->body; /* taken out first: the reply may send the next call */
        c->body = kept;
        empty(&c->body);
        take_message(c->session, start(&message));
        empty(&message);
    } else if (opcode == 8 && c->session->phase != DONE) {
        give_up(c->session, "closed", "");
    }
    return true;
}

static bool take_line(struct connection *c) {
    char *line = start(&c->in), *end = held(&c->in) ? memchr(line, '\n', held(&c->in)) : NULL;
    if (!end) return false;
    *end = 0;
    c->in.at += end + 1 - line;
    if (*line == '{') take_message(&pipe_session, line);
    return true;
}

static void serve(struct connection *c) {
    ssize_t size = read(c->fd, reserve(&c->in, READ_MAX), READ_MAX);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
        if (c->state == UNTIL_CLOSE && c->session->phase != DONE) end_response(c);
        else if (c->state != HEAD || options.transport == STDIO || held(&c->in) || c->is_stream)
            if (c->session->phase != DONE) give_up(c->session, "the connection ended", "");
        if (c->session->phase == LEAVING) finish(c->session);
        return hang_up(c); /* one that was kept alive is dialled again when it is needed */
    }
    c->in.end += size;
    c->in.bytes[c->in.end] = 0;
    while (c->fd > 0 && (options.transport == STDIO ? take_line(c) : c->state == FRAMES ? take_frame(c) : take_http(c)));
    if (c->fd > 0 && !held(&c->in) && (c->is_stream || options.idle)) release(&c->in); /* thousands may be idle */
}

/* --- what it costs ------------------------------------------------------------------------------------------------ */

static double cpu_us(void) {
    double sum = 0;
    for (int i = 0; i < options.pid_count; i++) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid(options.pids[i], &clock) || clock_gettime(clock, &t))
            fail("load: no process %d", options.pids[i]);
        sum += t.tv_sec * 1e6 + t.tv_nsec / 1e3;
    }
    return sum;
}

/* How much of all that was the kernel's, at the pace of its own ticks, some milliseconds each. */
static double kernel_us(void) {
    double ticks = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char path[64], line[1024] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", options.pids[i]);
        FILE *file = fopen(path, "r");
        char *at = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        for (int field = 2; at && field < 15; field++) at = strchr(at + 1, ' '); /* the name is the second, stime the 15th */
        if (at) ticks += atol(at);
        if (file) fclose(file);
    }
    return ticks * 1e6 / sysconf(_SC_CLK_TCK);
}

/* A field such as VmHWM of /proc/PID/status, summed, in KiB. */
static long memory_kb(const char *field) {
    long sum = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char path[64], line[256];
        snprintf(path, sizeof path, "/proc/%d/status", options.pids[i]);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file))
            if (!strncmp(line, field, strlen(field))) sum += atol(line + strlen(field) + 1);
        if (file) fclose(file);
    }
    return sum;
}

static void forget_peak(void) {
    for (int i = 0; i < options.pid_count; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/clear_refs", options.pids[i]);
        FILE *file = fopen(path, "w");
        if (file && (fputs("5", file) < 0 || fclose(file))) fail("load: cannot reset the peak of %d", options.pids[i]);
    }
}

static int compare(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static double quantile_us(int64_t *values, long count, double part) {
    if (!count) return 0;
    qsort(values, count, sizeof *values, compare);
    return values[(long)((count - 1) * part)] / 1e3;
}

static void pump(int timeout_ms) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll_fd, events, 256, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->fd > 0) serve(c);
    }
}

/* Let the proxy finish what it still does for the last call, so that its clock holds all of it. */
static void settle(long ms) {
    for (int64_t end = now_ns() + ms * 1000000; now_ns() < end;) pump(1);
}

/* Open sessions `from` to `to`, and warm those that call. */
static void open_sessions(long from, long to) {
    ready = opening = 0;
    for (opened = from; ready < to - from; pump(-1))
        while (opened < to && opening < (options.workers ? 1 : OPENING_MAX)) {
            struct session *s = &sessions[opened];
            s->slot = s->request = opened++;
            s->requests.session = s->stream.session = s;
            opening++;
            if (options.transport == WS) {
                static struct buffer hello;
                dial(&s->requests);
                empty(&hello);
                print(&hello, "GET %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                      "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
                      "sec-websocket-protocol: mcp\r\n\r\n", options.path, options.port);
                transmit(s->requests.fd, &hello);
            }
            advance(s);
            if (options.transport == STDIO && opened == 1)
                while (s->phase <= INITIALIZED) pump(-1); /* the others follow once it is initialized */
        }
}

/* Give each session the id of one at another replica, and warm it again. */
static void cross_sessions(void) {
    for (long i = 0; i < options.sessions; i++) memcpy(sessions[i].own_id, sessions[i].id, sizeof sessions[i].id);
    ready = 0;
    for (long i = 0; i < options.sessions; i++) {
        struct session *s = &sessions[i];
        size_t tag = tag_size(s->own_id);
        long other = (i + 1) % options.sessions;
        while (other != i && !strncmp(s->own_id, sessions[other].own_id, tag)) other = (other + 1) % options.sessions;
        if (other == i) fail("load: all sessions are at one replica: %s", s->own_id);
        memcpy(s->id, sessions[other].own_id, sizeof s->id);
        s->phase = WARM;
        s->calls_left = options.warm;
        opening++;
        next_call(s);
    }
    while (ready < options.sessions) pump(-1);
}

/* End all sessions, as a client that is through does. */
static void close_sessions(void) {
    for (long i = 0; options.is_crossed && i < options.sessions; i++) memcpy(sessions[i].id, sessions[i].own_id, sizeof sessions[i].id);
    if (options.transport != HTTP || options.is_modern || options.is_churn || options.idle) return;
    done = 0;
    for (long i = 0; i < slots; i++) {
        sessions[i].phase = LEAVING;
        if (*sessions[i].id) send_http(&sessions[i], "DELETE", "", NULL);
        else finish(&sessions[i]);
    }
    while (done < slots) pump(-1);
}

static void spawn(char **command) {
    int to[2], from[2];
    if (pipe(to) || pipe(from)) fail("load: no pipes");
    int pid = fork();
    if (!pid) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int i = 0; i < 2; i++) close(to[i]), close(from[i]);
        execvp(*command, command);
        fail("load: cannot run %s", *command);
    }
    close(to[0]);
    close(from[1]);
    options.pids[options.pid_count++] = pid;
    pipe_session.requests = (struct connection){.fd = from[0], .session = &pipe_session};
    pipe_session.stream.fd = to[1];
    watch(&pipe_session.requests);
}

static void time_out(int signal) {
    (void)signal;
    fprintf(stderr, "load: not through after %ld s:", options.timeout_s);
    for (long i = 0, shown = 0; i < slots && shown < 8; i++)
        if (sessions[i].phase != DONE && sessions[i].phase != IDLE && sessions[i].phase != READY && ++shown)
            fprintf(stderr, " session %ld %s", i, PHASES[sessions[i].phase]);
    fputc('\n', stderr);
    _exit(1);
}

static char **read_options(int count, char **arguments) {
    static const char *const names[] = {"http", "sse", "ws", "stdio"};
    int transport = 0, at = 2;
    while (count > 1 && transport < 4 && strcmp(arguments[1], names[transport])) transport++;
    if (count < 3 || transport == 4) fail("usage: load http|sse|ws PORT [options] | load stdio [options] -- COMMAND");
    options.transport = transport;
    if (transport != STDIO) options.port = atoi(arguments[at++]);
    for (; at < count; at++) {
        const char *name = arguments[at], *value = at + 1 < count ? arguments[at + 1] : "";
        static const struct { const char *name; long *value; } numbers[] = {
            {"--sessions", &options.sessions}, {"--calls", &options.calls}, {"--warm", &options.warm},
            {"--size", &options.size}, {"--events", &options.events}, {"--pace-ms", &options.pace_ms},
            {"--idle", &options.idle}, {"--rest-ms", &options.rest_ms}, {"--timeout-s", &options.timeout_s},
            {"--token-at", &options.token_at}, {"--tools", &options.tools}, {"--second-port", &options.second_port},
            {"--workers", &options.workers}, {"--parts", &options.parts}};
        size_t i = 0;
        while (i < sizeof numbers / sizeof *numbers && strcmp(numbers[i].name, name)) i++;
        if (!strcmp(name, "--")) return arguments + at + 1;
        if (!strcmp(name, "--modern")) options.is_modern = true;
        else if (!strcmp(name, "--sse")) options.is_sse = true;
        else if (!strcmp(name, "--churn")) options.is_churn = true;
        else if (!strcmp(name, "--crossed")) options.is_crossed = true;
        else if (!strcmp(name, "--path")) options.path = value, at++;
        else if (!strcmp(name, "--tool")) options.tool = value, at++;
        else if (!strcmp(name, "--tokens")) read_tokens(value), at++;
        else if (!strcmp(name, "--pid") && options.pid_count < PIDS_MAX) options.pids[options.pid_count++] = atoi(value), at++;
        else if (i < sizeof numbers / sizeof *numbers) *numbers[i].value = strtol(value, NULL, 10), at++;
        else fail("load: unknown option %s", name);
    }
    return NULL;
}

int main(int count, char **arguments) {
    char **command = read_options(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll_fd = epoll_create1(0);
    slots = options.sessions + options.idle;
    sessions = calloc(slots, sizeof *sessions);
    int parts = options.parts ? options.parts : options.idle ? PARTS : 1;
    long each = (options.calls + options.sessions * parts - 1) / (options.sessions * parts);
    long calls = each * options.sessions * parts;
    latencies = calloc(calls + 1, sizeof *latencies);
    delays = calloc(calls * options.events + 1, sizeof *delays);
    signal(SIGALRM, time_out);
    alarm(options.timeout_s);
    if (command) spawn(command);

    long idle_before_kb = memory_kb("VmRSS:");
    int64_t idle_us[PARTS];
    if (options.idle) {
        open_sessions(options.sessions, slots);
        settle(REST_AFTER_OPENING_MS);
        for (int i = 0; i < PARTS; i++) {
            double from_us = cpu_us();
            settle(options.rest_ms);
            idle_us[i] = cpu_us() - from_us;
        }
        qsort(idle_us, PARTS, sizeof *idle_us, compare);
    }
    long idle_after_kb = memory_kb("VmRSS:");
    open_sessions(0, options.sessions);
    if (options.is_crossed) cross_sessions();
    settle(20);
    forget_peak();
    long before_kb = memory_kb("VmRSS:");
    double kernel_before_us = kernel_us();
    int64_t *spent_us = calloc(parts, sizeof *spent_us);
    double wall_s = 0;
    for (int part = 0; part < parts; part++) {
        double from_us = cpu_us();
        int64_t began_ns = now_ns();
        is_measuring = true;
        done = 0;
        for (long i = 0; i < options.sessions; i++) {
            sessions[i].phase = RUN;
            sessions[i].calls_left = each;
            next_call(&sessions[i]);
        }
        while (done < options.sessions) pump(-1);
        wall_s += (now_ns() - began_ns) / 1e9;
        settle(20);
        spent_us[part] = cpu_us() - from_us;
        is_measuring = false;
    }
    double in_kernel_us = kernel_us() - kernel_before_us;
    qsort(spent_us, parts, sizeof *spent_us, compare);
    long peak_kb = memory_kb("VmHWM:"), after_kb = memory_kb("VmRSS:");
    close_sessions();
    printf("{\"calls\":%ld,\"cpu_us\":%.3f,\"kernel_us\":%.3f,\"wall_s\":%.6f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"rss_kb\":%ld,"
           "\"peak_kb\":%ld,\"after_kb\":%ld",
           calls, (double)spent_us[options.parts ? 0 : parts / 2] * parts / calls, in_kernel_us / calls, wall_s, quantile_us(latencies, latency_count, 0.5),
           quantile_us(latencies, latency_count, 0.99), before_kb, peak_kb, after_kb);
    if (options.pace_ms)
        printf(",\"delay_p50_us\":%.1f,\"delay_p99_us\":%.1f", quantile_us(delays, delay_count, 0.5),
               quantile_us(delays, delay_count, 0.99));
    if (options.idle)
        printf(",\"idle\":%ld,\"idle_kb\":%.3f,\"idle_cpu_us_per_s\":%.1f", options.idle,
               (double)(idle_after_kb - idle_before_kb) / options.idle, idle_us[PARTS / 2] * 1000.0 / options.rest_ms);
    puts("}");
    fflush(stdout);
    if (command) { /* its end of input tells it to end */
        close(pipe_session.stream.fd);
        close(pipe_session.requests.fd);
        waitpid(options.pids[options.pid_count - 1], NULL, 0);
    }
    return 0;
}
