/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Rings in plain arrays that user space maps: one of small and one of large records for each CPU.
 *
 * A producer reserves a record by adding to `head`, fills it and writes its number last; an interrupt that produces in between gets
 * the next one. The reader stops at the first record that does not have its number yet. Nobody locks, nobody wakes anybody.
 */
#ifndef PERFLOSS_RING_H
#define PERFLOSS_RING_H

struct cpu_area {
	struct ring_ctl ring;
	struct cpu_state state;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_area);
} areas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct big);
} bigs SEC(".maps");

const volatile struct options options = {};

/* More than can be reserved by interrupts between the check for room and the reservation. */
#define MARGIN 32

#define READ(x) (*(const volatile typeof(x) *)&(x))
#define WRITE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#define barrier() asm volatile("" ::: "memory")

static __always_inline struct cpu_area *this_area(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&areas, &cpu);
}

static __always_inline struct event *slot(u32 cpu, u64 number)
{
	u32 at = cpu * (options.event_mask + 1) + ((u32)number & options.event_mask);

	return bpf_map_lookup_elem(&events, &at);
}

/* x86 does not reorder stores; elsewhere an exchange orders them. */
static __always_inline void publish(u32 *seq, u64 number)
{
	barrier();
#if defined(__TARGET_ARCH_x86)
	WRITE(*seq, (u32)number + 1);
#else
	__sync_lock_test_and_set(seq, (u32)number + 1);
#endif
}

static __noinline void note_gap(struct cpu_area *area, u32 cpu)
{
	u64 number, since, count;
	struct event *e;

	if (!area)
		return;
	since = area->ring.lost_since;
	count = area->ring.lost_in_gap;
	area->ring.lost_since = 0;
	area->ring.lost_in_gap = 0;
	number = __sync_fetch_and_add(&area->ring.head, 1);
	e = slot(cpu, number);
	if (!e)
		return;
	e->ts = since;
	e->a = bpf_ktime_get_ns();
	e->tid = count;
	e->type = EV_LOST;
	publish(&e->seq, number);
}

/* A small record with its time, or none if the ring is full; what is lost is counted. The number is wanted back by publish(). */
static __always_inline struct event *reserve(struct cpu_area *area, u64 *number)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct event *e;

	if (READ(area->ring.head) - READ(area->ring.tail) > options.event_mask - MARGIN) {
		if (!area->ring.lost_since)
			area->ring.lost_since = bpf_ktime_get_ns();
		__sync_fetch_and_add(&area->ring.lost, 1);
		__sync_fetch_and_add(&area->ring.lost_in_gap, 1);
		return 0;
	}
	if (area->ring.lost_since)
		note_gap(area, cpu);
	*number = __sync_fetch_and_add(&area->ring.head, 1);
	e = slot(cpu, *number);
	if (!e)
		return 0;
	/* after the reservation: what is not published yet is not older than what the reader has seen */
	e->ts = bpf_ktime_get_ns();
	return e;
}

static __always_inline void emit(struct cpu_area *area, u8 type, u8 flags, u16 x, u32 tid, u32 other, u64 a)
{
	u64 number;
	struct event *e = reserve(area, &number);

	if (!e)
		return;
	e->a = a;
	e->tid = tid;
	e->other = other;
	e->type = type;
	e->flags = flags;
	e->x = x;
	publish(&e->seq, number);
}

/* A large record; `ns` is the waiting time that is lost with it if there is no room. */
static __always_inline struct big *reserve_big(struct cpu_area *area, u64 *number, u64 ns)
{
	u32 at, cpu = bpf_get_smp_processor_id();

	if (READ(area->ring.big_head) - READ(area->ring.big_tail) > options.big_mask - MARGIN) {
		__sync_fetch_and_add(&area->ring.big_lost, 1);
		__sync_fetch_and_add(&area->ring.big_lost_ns, ns);
		return 0;
	}
	*number = __sync_fetch_and_add(&area->ring.big_head, 1);
	at = cpu * (options.big_mask + 1) + ((u32)*number & options.big_mask);
	return bpf_map_lookup_elem(&bigs, &at);
}

#endif
