/* Capture: work put on a stream becomes a node of a graph instead of running; events carry the capture to other streams and
 * back. A graph is made in no other way here. Launching one puts its nodes into the queue, each after those that it follows,
 * between a first and a last empty operation that stand in the stream.
 *
 * The nodes that were captured from one stream follow one another, so they are a chain (race.c) at every launch; and launches
 * of one executable graph follow one another too. */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

typedef struct Node {
    Work *work;
    int *before, before_count; /* indices of earlier nodes */
    int lane;                  /* which of the captured streams it came from */
} Node;

typedef struct Graph {
    Node **nodes; /* a node's address is its handle */
    int count, room;
    int lanes;
    int *chains; /* executable: the chain of each lane */
    bool executable;
    Point last; /* executable: the end of the launch before */
    struct Graph *next;
} Graph;

typedef struct Capture {
    uint64_t id;
    Graph *graph;
    Stream *origin;
    enum cudaStreamCaptureMode mode;
    bool spoiled;
    struct Capture *next;
} Capture;

static Capture *captures; /* under way */
static Graph *graphs;     /* all handles that are valid */
static uint64_t next_capture = 1;

/* ---- Graphs ---------------------------------------------------------------------------------------------------------- */

static void node_add(Graph *g, Work *work, const int *before, int before_count, int lane)
{
    Node *n = get(1, sizeof *n);
    *n = (Node){.work = work, .before = get((size_t)before_count, sizeof(int)), .before_count = before_count, .lane = lane};
    if (before_count)
        memcpy(n->before, before, (size_t)before_count * sizeof(int));
    g->nodes = array_grow(g->nodes, g->count, &g->room, sizeof(Node *));
    g->nodes[g->count++] = n;
}

static void graph_free(Graph *g)
{
    for (int i = 0; i < g->count; i++) {
        work_drop(g->nodes[i]->work);
        free(g->nodes[i]->before);
        free(g->nodes[i]);
    }
    free(g->nodes);
    free(g->chains);
    free(g);
}

static Graph *graph_find(const void *handle, bool executable)
{
    Graph *g = graphs;
    while (g && (g != handle || g->executable != executable))
        g = g->next;
    return g;
}

static void graph_enter(Graph *g)
{
    g->next = graphs;
    graphs = g;
}

static cudaError_t graph_destroy(const void *handle, bool executable)
{
    Graph *g = graph_find(handle, executable), **link = &graphs;
    if (!g)
        return cudaErrorInvalidValue;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    graph_free(g);
    return cudaSuccess;
}

/* ---- Capture: what the rest of the runtime asks ---------------------------------------------------------------------- */

cudaError_t capture_add(Stream *stream, Work *work)
{
    Capture *c = stream->capture;
    if (c->spoiled) {
        work_drop(work);
        return cudaErrorStreamCaptureInvalidated;
    }
    node_add(c->graph, work, stream->front, stream->front_count, stream->lane);
    stream->front_count = 1;
    stream->front = array_grow(stream->front, 0, &stream->front_room, sizeof(int));
    stream->front[0] = c->graph->count - 1;
    return cudaSuccess;
}

cudaError_t capture_forbids(const Stream *stream)
{
    for (Capture *c = captures; c; c = c->next)
        if (stream ? stream->capture == c : c->mode != cudaStreamCaptureModeRelaxed) {
            c->spoiled = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    return cudaSuccess;
}

cudaError_t capture_forbids_legacy(void)
{
    for (Capture *c = captures; c; c = c->next)
        if (c->origin->blocking && c->mode != cudaStreamCaptureModeRelaxed) {
            c->spoiled = true;
            return cudaErrorStreamCaptureImplicit;
        }
    return cudaSuccess;
}

static Capture *find(uint64_t id)
{
    Capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

bool capture_active(const CapturePoint *mark)
{
    return mark->id && find(mark->id);
}

cudaError_t capture_spoil(const CapturePoint *mark, cudaError_t e)
{
    find(mark->id)->spoiled = true;
    return e;
}

cudaError_t capture_mark(const Stream *stream, CapturePoint *mark)
{
    if (stream->capture->spoiled)
        return cudaErrorStreamCaptureInvalidated;
    mark->id = stream->capture->id;
    mark->count = stream->front_count;
    free(mark->front);
    mark->front = get((size_t)mark->count, sizeof(int));
    if (mark->count)
        memcpy(mark->front, stream->front, (size_t)mark->count * sizeof(int));
    return cudaSuccess;
}

/* The next node of the stream follows this one too. */
static void front_add(Stream *s, int node)
{
    for (int i = 0; i < s->front_count; i++)
        if (s->front[i] == node)
            return;
    s->front = array_grow(s->front, s->front_count, &s->front_room, sizeof(int));
    s->front[s->front_count++] = node;
}

static void join(Stream *s, Capture *c)
{
    s->capture = c;
    s->front_count = 0;
    s->lane = c->graph->lanes++;
}

cudaError_t capture_wait(Stream *stream, const CapturePoint *mark)
{
    Capture *c = find(mark->id);
    if (stream->capture && stream->capture != c) {
        stream->capture->spoiled = c->spoiled = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (!stream->capture)
        join(stream, c);
    for (int i = 0; i < mark->count; i++)
        front_add(stream, mark->front[i]);
    return cudaSuccess;
}

/* ---- Capture: the interface ------------------------------------------------------------------------------------------ */

static cudaError_t capture_begin(Stream *s, enum cudaStreamCaptureMode mode)
{
    if (s == &stream_legacy)
        return cudaErrorStreamCaptureUnsupported;
    if (s->capture || (unsigned)mode > cudaStreamCaptureModeRelaxed)
        return cudaErrorIllegalState;
    Capture *c = get(1, sizeof *c);
    *c = (Capture){.id = next_capture++, .graph = get(1, sizeof(Graph)), .origin = s, .mode = mode, .next = captures};
    captures = c;
    join(s, c);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = capture_begin(s, mode);
    return leave(e);
}

/* Marks the node and all that it follows: they have lower numbers. */
static void mark_past(const Graph *g, int node, bool *seen)
{
    seen[node] = true;
    for (int i = node; i >= 0; i--)
        for (int k = 0; seen[i] && k < g->nodes[i]->before_count; k++)
            seen[g->nodes[i]->before[k]] = true;
}

/* True when the origin waits for everything that the other streams of the capture did. */
static bool is_joined(const Capture *c)
{
    bool *seen = get((size_t)c->graph->count, sizeof *seen), joined = true;
    for (int i = 0; i < c->origin->front_count; i++)
        mark_past(c->graph, c->origin->front[i], seen);
    for (const Stream *s = &stream_legacy; s; s = s->next)
        for (int i = 0; s->capture == c && i < s->front_count; i++)
            joined &= seen[s->front[i]];
    free(seen);
    return joined;
}

static cudaError_t capture_end(Stream *s, cudaGraph_t *graph)
{
    Capture *c = s->capture, **link = &captures;
    if (!c)
        return cudaErrorIllegalState;
    if (c->origin != s) {
        c->spoiled = true;
        return cudaErrorStreamCaptureUnmatched;
    }
    cudaError_t e = c->spoiled ? cudaErrorStreamCaptureInvalidated : is_joined(c) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
    for (Stream *t = &stream_legacy; t; t = t->next)
        if (t->capture == c)
            t->capture = NULL;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    *graph = e ? NULL : (cudaGraph_t)c->graph;
    if (e)
        graph_free(c->graph);
    else
        graph_enter(c->graph);
    free(c);
    return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = capture_end(s, graph);
    return leave(e);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && s == &stream_legacy)
        e = capture_forbids_legacy();
    if (!e)
        *status = !s->capture           ? cudaStreamCaptureStatusNone
                  : s->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return leave(e);
}

/* ---- Graphs: the interface ------------------------------------------------------------------------------------------- */

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t e = enter();
    if (!e)
        e = graph_destroy(graph, false);
    return leave(e);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    cudaError_t e = enter();
    if (!e)
        e = graph_destroy(graph, true);
    return leave(e);
}

/* The executable graph is a copy, so the graph may be destroyed. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t e = enter();
    Graph *g = e ? NULL : graph_find(graph, false);
    if (!e && (!executable || !g || flags & ~15ull))
        e = cudaErrorInvalidValue;
    if (!e) {
        Graph *x = get(1, sizeof *x);
        x->executable = true;
        x->lanes = g->lanes;
        x->chains = get((size_t)g->lanes, sizeof(int));
        for (int i = 0; i < g->lanes; i++)
            x->chains[i] = chain_new();
        for (int i = 0; i < g->count; i++)
            node_add(x, work_keep(g->nodes[i]->work), g->nodes[i]->before, g->nodes[i]->before_count, g->nodes[i]->lane);
        graph_enter(x);
        *executable = (cudaGraphExec_t)x;
    }
    return leave(e);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && !graph_find(executable, true))
        e = cudaErrorInvalidValue;
    return leave(e);
}

/* Puts the nodes into the queue. */
static void launch(Graph *g, Stream *s)
{
    Point *points = get((size_t)g->count, sizeof *points);
    Op *op = op_new(s, s->chain, work_new(WORK_EMPTY, NULL, NULL, NULL, "begin of a graph"));
    op_follow_stream(op);
    op_follow(op, &g->last);
    Point begin = op_submit(op);
    for (int i = 0; i < g->count; i++) {
        const Node *n = g->nodes[i];
        op = op_new(s, g->chains[n->lane], work_keep(n->work));
        op_follow(op, &begin);
        for (int k = 0; k < n->before_count; k++)
            op_follow(op, &points[n->before[k]]);
        points[i] = op_submit(op);
    }
    op = op_new(s, s->chain, work_new(WORK_EMPTY, NULL, NULL, NULL, "end of a graph"));
    op_follow(op, &begin);
    for (int i = 0; i < g->count; i++)
        op_follow(op, &points[i]);
    s->tail = g->last = op_submit(op);
    free(points);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    Graph *g = e ? NULL : graph_find(executable, true);
    if (!e)
        e = stream_find(stream, &s);
    if (!e && !g)
        e = cudaErrorInvalidValue;
    if (!e && s->capture) {
        say("cudaGraphLaunch into a captured stream is not implemented in the software GPU");
        e = cudaErrorNotSupported;
    }
    if (!e && s == &stream_legacy)
        e = capture_forbids_legacy();
    if (!e) {
        launch(g, s);
        queue_eager();
        e = fault_get();
    }
    return leave(e);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    cudaError_t e = enter();
    const Graph *g = e ? NULL : graph_find(graph, false);
    if (!e && (!g || !count))
        e = cudaErrorInvalidValue;
    if (!e && !nodes)
        *count = (size_t)g->count;
    for (size_t i = 0; !e && nodes && i < *count; i++)
        nodes[i] = i < (size_t)g->count ? (cudaGraphNode_t)g->nodes[i] : NULL;
    return leave(e);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    static const enum cudaGraphNodeType types[] = {[WORK_EMPTY] = cudaGraphNodeTypeEmpty,
                                                   [WORK_KERNEL] = cudaGraphNodeTypeKernel,
                                                   [WORK_COPY] = cudaGraphNodeTypeMemcpy,
                                                   [WORK_FILL] = cudaGraphNodeTypeMemset,
                                                   [WORK_HOST] = cudaGraphNodeTypeHost};
    cudaError_t e = enter();
    if (!e)
        *type = types[((const Node *)node)->work->kind];
    return leave(e);
}

void graph_reset(void)
{
    while (captures) {
        Capture *c = captures;
        captures = c->next;
        graph_free(c->graph);
        free(c);
    }
    while (graphs) {
        Graph *g = graphs;
        graphs = g->next;
        graph_free(g);
    }
    for (Stream *s = &stream_legacy; s; s = s->next)
        s->capture = NULL;
}
