/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Which block device a wait was for: that of the request whose completion wakes.
 *
 * A completion is seen in an interrupt. Whom the same handler wakes afterwards waited for the request,
 * and so did those whom a work item wakes that the handler put into a queue. Whatever else wakes says nothing about a device.
 */
#ifndef PERFLOSS_IO_H
#define PERFLOSS_IO_H

/* Kinds of interrupt handlers, as bytes of `contexts`: those that complete requests and nothing else, and the others. */
#define CONTEXT_IO 1
#define CONTEXT_OTHER 2
/* Soft interrupts of the block layer. */
#define BLOCK_SOFTIRQ 4
#define IRQ_POLL_SOFTIRQ 5

/* Work items that wait for a worker, by address: put into the queue by the completion of that request. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct io_mark);
} marked_work SEC(".maps");

/* How many of them there are, at most: while there are none nobody needs to look. */
u32 marked_count;

static __always_inline u8 context_of(u8 kind, u16 number)
{
	if (kind == IRQ_HARD)
		return CONTEXT_IO;
	return kind == IRQ_SOFT && (number == BLOCK_SOFTIRQ || number == IRQ_POLL_SOFTIRQ) ? CONTEXT_IO : CONTEXT_OTHER;
}

/* The request on whose behalf the current context works; `of_work` is that of the work item if the current task is a worker. */
static __always_inline struct io_mark *io_mark(struct cpu_area *area, struct io_mark *of_work)
{
	if (area->state.irq_depth)
		return area->state.io_depth == area->state.irq_depth ? &area->state.io : 0;
	return of_work && of_work->done ? of_work : 0;
}

static __always_inline void note_done(struct cpu_area *area, u32 dev, u32 op, u64 issued)
{
	/* what completes in the course of a task was done by the task: its time tells */
	if (!dev || !area->state.irq_depth || (area->state.contexts & 0xff) != CONTEXT_IO)
		return;
	area->state.io.dev = dev;
	area->state.io.op = op;
	area->state.io.issued = issued;
	area->state.io.done = bpf_ktime_get_ns();
	area->state.io_depth = area->state.irq_depth;
}

/* The low byte of the operation and flags is the operation. `empty`: it carries no data. */
static __always_inline u32 io_op(u32 flags, bool empty)
{
	/* the numbers are those of the block layer's interface to its drivers */
	switch (flags & 0xff) {
	case 0:
		return IO_READ;
	case 1:
		return empty ? IO_FLUSH : IO_WRITE;
	case 2:
		return IO_FLUSH;
	case 3:
	case 5:
		return IO_DISCARD;
	case 7:
	case 9:
		return IO_WRITE;
	}
	return IO_OTHER;
}

/* An age in units of 2^AGE_SHIFT ns, if it fits into 32 bits. */
static __always_inline bool age(u64 now, u64 then, u32 *units)
{
	u64 n = (now - then) >> AGE_SHIFT;

	*units = n;
	return n < ~0U;
}

static __always_inline void emit_io(struct cpu_area *area, struct io_mark *mark, u32 wakee)
{
	u64 now = bpf_ktime_get_ns();
	u32 issued = 0, done = 0;

	if (!age(now, mark->done, &done))
		return;
	/* rounded towards the past, and never 0 */
	if (mark->issued)
		issued = age(now, mark->issued, &issued) ? issued + 1 : 0;
	emit(area, EV_IO_DONE, mark->op, 0, wakee, mark->dev, (u64)done << 32 | issued);
}

static __always_inline void queue_work(struct cpu_area *area, struct io_mark *of_work, u64 work)
{
	struct io_mark *mark = io_mark(area, of_work);

	if (mark) {
		if (!bpf_map_lookup_elem(&marked_work, &work))
			__sync_fetch_and_add(&marked_count, 1);
		bpf_map_update_elem(&marked_work, &work, mark, BPF_ANY);
	} else if (READ(marked_count) && !bpf_map_delete_elem(&marked_work, &work)) {
		/* the work that was cancelled, and is now put into a queue for another reason */
		__sync_fetch_and_sub(&marked_count, 1);
	}
}

/* A worker begins with a work item: whether that is due to a completion. */
static __always_inline void begin_work(struct io_mark *mine, u64 work)
{
	struct io_mark *mark;

	mine->done = 0;
	if (!READ(marked_count))
		return;
	mark = bpf_map_lookup_elem(&marked_work, &work);
	if (!mark)
		return;
	*mine = *mark;
	if (!bpf_map_delete_elem(&marked_work, &work))
		__sync_fetch_and_sub(&marked_count, 1);
}

#endif
