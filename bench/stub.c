/* An upstream that costs next to nothing: `stub http` prints its port, `stub stdio` speaks lines; `--era legacy|modern`.

   One tool, `echo`. Its arguments say what its reply is like: `message` comes back as the beginning of the text, followed
   by "|" and `size` times "x"; `events` progress notifications come first, `pace_ms` apart, each with the monotonic time
   it was sent at; `sse` has the reply go out as an event stream; `write` names a file of `write_size` bytes to make in
   the working folder. Asked at a path that ends in a number, it lists as many tools, of the size that tools of released
   servers have. Whatever breaks a rule of the protocol that a proxy must
   keep (a session nobody opened, a mirrored header that differs) is refused, so a run with wrong requests fails. */

#include "wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define SESSIONS_MAX (1 << 20)
#define LISTING                                                                                                          \
    "{\"tools\":[{\"name\":\"echo\",\"description\":\"Gives back\",\"inputSchema\":{\"type\":\"object\","                \
    "\"properties\":{\"message\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"},\"events\":{\"type\":\"integer\"}," \
    "\"pace_ms\":{\"type\":\"integer\"},\"sse\":{\"type\":\"boolean\"}}}}]"

#define INITIALIZED(revision)                                                                                           \
    "{\"protocolVersion\":\"" revision "\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"stub\",\"version\":\"1\"}"

struct peer {
    int in, out; /* one socket, or two pipes */
    struct buffer read, write;
    bool is_line, is_watching_out, is_busy; /* busy: a paced reply is under way */
    int streaming;                          /* the session whose GET stream it holds, until either ends; else 0 */
    int pending;                            /* paced replies of a pipe */
    bool is_gone;
};

struct paced {
    struct paced *next;
    struct peer *peer;
    int64_t due_ns;
    long sent, events, size, pace_ms;
    char id[80], token[80], message[160];
    bool is_modern, is_stream;
};

static int epoll_fd;
static bool flush(struct peer *p);
static bool serves_modern;
static unsigned char is_open[SESSIONS_MAX];
static struct peer *stream_of[SESSIONS_MAX];
static int sessions;
static struct paced *waiting;

static void frame(struct peer *p, struct buffer *message, bool is_stream) {
    if (p->is_line) {
        append(&p->write, start(message), held(message));
        append(&p->write, "\n", 1);
    } else if (is_stream) {
        print(&p->write, "%zx\r\nevent: message\ndata: ", held(message) + strlen("event: message\ndata: \n\n"));
        append(&p->write, start(message), held(message));
        append(&p->write, "\n\n\r\n", 4);
    } else {
        print(&p->write, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", held(message));
        append(&p->write, start(message), held(message));
    }
}

static void send_progress(struct peer *p, const struct paced *reply) {
    static struct buffer message;
    empty(&message);
    print(&message, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,"
          "\"progress\":%ld,\"total\":%ld,\"message\":\"%lld\"}}",
          reply->token, reply->sent, reply->events, (long long)now_ns());
    frame(p, &message, reply->is_stream);
}

static void send_result(struct peer *p, const struct paced *reply) {
    static struct buffer message;
    empty(&message);
    print(&message, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{%s\"content\":[{\"type\":\"text\",\"text\":\"%s|", reply->id,
          reply->is_modern ? "\"resultType\":\"complete\"," : "", reply->message);
    memset(reserve(&message, reply->size), 'x', reply->size);
    message.end += reply->size;
    append(&message, "\"}]}}", 5);
    frame(p, &message, reply->is_stream);
    if (reply->is_stream) append(&p->write, "0\r\n\r\n", 5);
}

static void copy(char *to, size_t room, const char *value, int size) {
    if ((size_t)size >= room) fail("stub: too long: %.*s", size, value);
    memcpy(to, value, size);
    to[size] = 0;
}

static void write_file(const char *name, int name_size, long size) {
    char path[256];
    static char part[65536];
    copy(path, sizeof path, name, name_size);
    memset(part, 'x', sizeof part);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (long left = size; left > 0; left -= sizeof part)
        if (file < 0 || write(file, part, left < (long)sizeof part ? left : (long)sizeof part) < 0)
            fail("stub: cannot write %s: %s", path, strerror(errno));
    close(file);
}

static void call(struct peer *p, const char *body, bool is_modern) {
    struct paced reply = {.peer = p, .is_modern = is_modern};
    const char *id = member(body, "id"), *token = member(body, "progressToken"), *message = member(body, "message");
    copy(reply.id, sizeof reply.id, id, extent(id));
    if (token) copy(reply.token, sizeof reply.token, token, extent(token));
    if (message && *message == '"') copy(reply.message, sizeof reply.message, message + 1, extent(message) - 2);
    reply.size = number(body, "size", 64);
    reply.events = token ? number(body, "events", 0) : 0;
    reply.pace_ms = number(body, "pace_ms", 0);
    const char *sse = member(body, "sse"), *file = member(body, "write");
    if (file && p->is_line) write_file(file + 1, extent(file) - 2, number(body, "write_size", 0));
    reply.is_stream = !p->is_line && ((sse && *sse == 't') || reply.events);
    if (reply.is_stream)
        print(&p->write, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
              "transfer-encoding: chunked\r\n\r\n");
    if (!reply.pace_ms) {
        while (reply.sent++ < reply.events) {
            send_progress(p, &reply);
            flush(p); /* each event is a write of its own, as servers do it */
        }
        send_result(p, &reply);
        return;
    }
    struct paced *kept = malloc(sizeof *kept);
    if (!kept) fail("stub: out of memory");
    *kept = reply;
    kept->due_ns = now_ns() + reply.pace_ms * 1000000;
    kept->next = waiting;
    waiting = kept;
    p->is_busy = !p->is_line;
    p->pending++;
}

static void refuse(struct peer *p, int status, int code, const char *id, const char *why) {
    struct buffer message = {0};
    print(&message, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":{\"code\":%d,\"message\":\"%s\"}}", id ? extent(id) : 4,
          id ? id : "null", code, why);
    if (p->is_line)
        frame(p, &message, false);
    else
        print(&p->write, "HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status,
              held(&message), start(&message));
    release(&message);
}

/* `result` holds no closing brace of its own object: what the era adds comes behind it. */
static void reply(struct peer *p, const char *id, const char *result, bool is_modern, int session) {
    struct buffer message = {0};
    print(&message, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":%s%s}}", extent(id), id, result,
          is_modern ? ",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"" : "");
    if (session)
        print(&p->write, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s%d\r\n"
              "content-length: %zu\r\n\r\n%s", session, held(&message), start(&message));
    else
        frame(p, &message, false);
    release(&message);
}

/* The session that a head names, 0 for one that is not open, -1 for none. */
static int session_of(const char *head) {
    const char *value = header(head, "mcp-session-id");
    if (!value) return -1;
    int session = *value == 's' ? atoi(value + 1) : 0;
    return session > 0 && session < SESSIONS_MAX && is_open[session] ? session : 0;
}

static bool is_mirrored(const char *head, const char *name, const char *value) {
    const char *said = header(head, name);
    int size = value ? extent(value) - 2 : 0;
    return said && value && !strncmp(said, value + 1, size) && !strncmp(said + size, "\r\n", 2);
}

static void list(struct peer *p, const char *id, const char *head, bool is_modern) {
    static struct buffer tools;
    int count = 0;
    if (!head || sscanf(head, "POST /mcp/%d ", &count) != 1) return reply(p, id, LISTING, is_modern, 0);
    empty(&tools);
    for (int tool = 0; tool < count; tool++)
        print(&tools, "%s{\"name\":\"echo-%d\",\"description\":\"%0400d\",\"inputSchema\":{\"type\":\"object\","
              "\"properties\":{\"message\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"},\"events\":"
              "{\"type\":\"integer\"}}}}", tool ? "," : "{\"tools\":[", tool, 0);
    append(&tools, "]", 1);
    reply(p, id, start(&tools), is_modern, 0);
}

static void answer(struct peer *p, const char *head, const char *body) {
    const char *method = member(body, "method"), *id = member(body, "id");
    if (!method) return refuse(p, 400, -32600, id, "expected a request or a notification");
    bool is_modern = member(body, META "protocolVersion") != NULL;
    if (is_modern != serves_modern && id)
        return refuse(p, 400, is_text(method, "server/discover") ? -32601 : -32600, id, "of the other era");
    if (head && is_modern) {
        if (!is_mirrored(head, "mcp-protocol-version", member(body, META "protocolVersion")) ||
            !is_mirrored(head, "mcp-method", method) ||
            (is_text(method, "tools/call") && !is_mirrored(head, "mcp-name", "\"echo\"")))
            return refuse(p, 400, -32020, id, "headers differ from the body");
    } else if (head && !is_text(method, "initialize")) {
        int session = session_of(head);
        if (session <= 0) return refuse(p, session ? 400 : 404, -32000, id, "no such session");
    }
    if (!id) {
        if (head) print(&p->write, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
    } else if (is_text(method, "tools/call")) {
        call(p, body, is_modern);
    } else if (is_text(method, "initialize")) {
        if (++sessions == SESSIONS_MAX) fail("stub: too many sessions");
        is_open[sessions] = 1;
        bool is_older = is_text(member(body, "protocolVersion"), OLDER);
        reply(p, id, is_older ? INITIALIZED(OLDER) : INITIALIZED(LEGACY), false, head ? sessions : 0);
    } else if (is_text(method, "server/discover") && is_modern) {
        reply(p, id, "{\"supportedVersions\":[\"" MODERN "\"],\"capabilities\":{\"tools\":{}},\"_meta\":{\"" META
              "serverInfo\":{\"name\":\"stub\",\"version\":\"1\"}}", true, 0);
    } else if (is_text(method, "tools/list")) {
        list(p, id, head, is_modern);
    } else if (is_text(method, "ping")) {
        reply(p, id, "{\"_meta\":{}", false, 0);
    } else {
        refuse(p, is_modern ? 404 : 200, -32601, id, "no such method");
    }
}

/* Take the body of a request whose head ends at `head_size` out of the buffer's beginning: its size once it is there in
   full, else -1. A chunked one is made whole in place. */
static long take_body(struct peer *p, size_t head_size, size_t *consumed) {
    char *head = start(&p->read), *body = head + head_size, *end = p->read.bytes + p->read.end;
    const char *length = header(head, "content-length");
    if (!has_token(header(head, "transfer-encoding"), "chunked")) {
        long size = length ? atol(length) : 0;
        *consumed = head_size + size;
        return end - body >= size ? size : -1;
    }
    for (int pass = 0; pass < 2; pass++) { /* first see that all is there */
        char *at = body, *to = body;
        for (;;) {
            char *line = memmem(at, end - at, "\r\n", 2);
            if (!line) return -1;
            long size = strtol(at, NULL, 16);
            at = line + 2;
            if (end - at < size + 2) return -1;
            if (pass) memmove(to, at, size);
            to += size;
            at += size + 2;
            if (!size) break;
        }
        *consumed = at - head;
        if (pass) return to - body;
    }
    return -1;
}

/* As real servers do before they answer a DELETE: the connection can be used again. */
static void end_stream(int session) {
    struct peer *p = stream_of[session];
    if (!p) return;
    stream_of[session] = NULL;
    p->streaming = 0;
    append(&p->write, "0\r\n\r\n", 5);
    flush(p); /* a peer that left is seen when it is read */
}

static bool take_request(struct peer *p) {
    char *head = held(&p->read) ? start(&p->read) : NULL, *end = head ? memmem(head, held(&p->read), "\r\n\r\n", 4) : NULL;
    if (!end) return false;
    size_t consumed;
    long size = take_body(p, end + 4 - head, &consumed);
    if (size < 0) return false;
    char *body = end + 4, kept_body = body[size];
    static struct buffer text;
    empty(&text);
    append(&text, head, end + 4 - head); /* a NUL-ended copy of the head, for strstr */
    body[size] = 0;
    int session = session_of(start(&text));
    if (!strncmp(head, "POST ", 5)) {
        answer(p, start(&text), body);
    } else if (!strncmp(head, "GET ", 4) && !serves_modern && session > 0) {
        print(&p->write, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        p->streaming = session;
        stream_of[session] = p;
    } else if (!strncmp(head, "DELETE ", 7) && session > 0) {
        is_open[session] = 0;
        end_stream(session);
        print(&p->write, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    } else {
        print(&p->write, "HTTP/1.1 %d Refused\r\ncontent-length: 0\r\n\r\n", serves_modern || session < 0 ? 405 : 404);
    }
    body[size] = kept_body;
    p->read.at += consumed;
    return true;
}

static bool take_line(struct peer *p) {
    char *line = held(&p->read) ? start(&p->read) : NULL, *end = line ? memchr(line, '\n', held(&p->read)) : NULL;
    if (!end) return false;
    *end = 0;
    answer(p, NULL, line);
    p->read.at += end + 1 - line;
    return true;
}

static void leave(struct peer *p) {
    if (p->is_line) exit(0);
    if (!p->is_gone) close(p->in);
    p->is_gone = true;
    if (p->streaming && stream_of[p->streaming] == p) stream_of[p->streaming] = NULL;
    p->streaming = 0;
    if (p->pending) return; /* freed when its replies fall due */
    release(&p->read);
    release(&p->write);
    free(p);
}

/* False if the peer is gone. */
static bool flush(struct peer *p) {
    while (held(&p->write)) {
        ssize_t size = write(p->out, start(&p->write), held(&p->write));
        if (size < 0 && errno == EAGAIN) break;
        if (size < 0) return false;
        p->write.at += size;
    }
    bool is_waiting = held(&p->write) > 0;
    if (is_waiting != p->is_watching_out) {
        bool is_two = p->in != p->out;
        struct epoll_event event = {.events = is_waiting ? EPOLLOUT : 0, .data.ptr = p};
        if (!is_two) event.events |= EPOLLIN;
        epoll_ctl(epoll_fd, is_two && is_waiting ? EPOLL_CTL_ADD : is_two ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, p->out, &event);
        p->is_watching_out = is_waiting;
    }
    if (!is_waiting && p->write.room > READ_MAX) release(&p->write);
    return true;
}

static void serve(struct peer *p) {
    ssize_t size = read(p->in, reserve(&p->read, READ_MAX), READ_MAX);
    if (size < 0 && errno == EAGAIN) size = 0;
    else if (size <= 0) return leave(p);
    p->read.end += size;
    p->read.bytes[p->read.end] = 0;
    while (!p->is_busy && (p->is_line ? take_line(p) : take_request(p)));
    if (!flush(p)) return leave(p);
    if (p->streaming || !held(&p->read)) release(&p->read); /* thousands may be idle */
}

static int serve_due(void) {
    int64_t now = now_ns(), next = INT64_MAX;
    for (struct paced **at = &waiting; *at;) {
        struct paced *reply = *at;
        struct peer *p = reply->peer;
        if (reply->due_ns <= now && !p->is_gone) {
            if (reply->sent++ < reply->events) {
                send_progress(p, reply);
                reply->due_ns += reply->pace_ms * 1000000;
            } else {
                send_result(p, reply);
                reply->peer = NULL;
            }
            flush(p); /* a peer that left is seen when it is read */
        }
        if (reply->peer && !p->is_gone) {
            if (reply->due_ns < next) next = reply->due_ns;
            at = &reply->next;
            continue;
        }
        *at = reply->next;
        free(reply);
        p->pending--;
        p->is_busy = false;
        if (p->is_gone) leave(p);
        else if (held(&p->read)) serve(p);
        at = &waiting; /* serving may have added to the list */
        next = INT64_MAX;
    }
    return next == INT64_MAX ? -1 : next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

static void watch(int in, int out, bool is_line) {
    struct peer *p = calloc(1, sizeof *p);
    if (!p) fail("stub: out of memory");
    *p = (struct peer){.in = in, .out = out, .is_line = is_line};
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, in, &event)) fail("stub: cannot watch: %s", strerror(errno));
}

static int listen_anywhere(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) fail("stub: cannot listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    bool is_http = count > 1 && !strcmp(arguments[1], "http");
    if (!is_http && (count < 2 || strcmp(arguments[1], "stdio"))) fail("usage: stub http|stdio [--era legacy|modern]");
    serves_modern = count > 3 && !strcmp(arguments[3], "modern");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll_fd = epoll_create1(0);
    int listener = -1;
    if (is_http) {
        listener = listen_anywhere();
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    } else {
        watch(0, 1, true);
    }
    for (;;) {
        struct epoll_event events[256];
        int ready = epoll_wait(epoll_fd, events, 256, serve_due());
        for (int i = 0; i < ready; i++) {
            struct peer *p = events[i].data.ptr;
            if (!p) {
                int accepted, one = 1;
                while ((accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                    setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    watch(accepted, accepted, false);
                }
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                serve(p);
            } else if (!flush(p)) {
                leave(p);
            }
        }
    }
}
