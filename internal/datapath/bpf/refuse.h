/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Refusals are counted per frontend and reason, and shown as they happen.
 */
#ifndef FAIRLEAD_REFUSE_H
#define FAIRLEAD_REFUSE_H

#include "select.h"

static __always_inline void count_refusal(const struct selection *s)
{
	struct refusal_key key = { .port = s->target.port, .protocol = s->protocol, .reason = s->reason };
	__u64 one = 1, *n;

	__builtin_memcpy(key.address, s->target.address, sizeof(key.address));
	n = bpf_map_lookup_elem(&fairlead_refused, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&fairlead_refused, &key, &one, BPF_ANY);
}

/* An event with what the selection says; NULL, and counted, if there is no
 * room. Whoever fills it in submits it. */
static __always_inline struct refusal *new_event(const struct selection *s)
{
	struct refusal *r = bpf_ringbuf_reserve(&fairlead_events, sizeof(*r), 0);

	if (!r) {
		count(COUNTER_EVENTS_LOST);
		return NULL;
	}
	r->time = bpf_ktime_get_ns();
	r->netns = s->netns;
	r->pid = 0;
	r->owner = s->owner;
	r->set = s->set;
	__builtin_memcpy(r->address, s->target.address, sizeof(r->address));
	r->port = s->target.port;
	r->protocol = s->protocol;
	r->reason = s->reason;
	r->dropped = s->dropped;
	r->host = !s->wire && s->netns == host_netns;
	r->source_port = 0;
	__builtin_memset(r->command, 0, sizeof(r->command));
	__builtin_memcpy(r->source, s->source, sizeof(r->source));
	r->device = 0;
	return r;
}

/* Of a packet. */
static __always_inline void report_refusal(const struct selection *s, __be16 source_port, __u32 device)
{
	struct refusal *r;

	count_refusal(s);
	r = new_event(s);
	if (!r)
		return;
	r->source_port = source_port;
	r->device = device;
	bpf_ringbuf_submit(r, 0);
}

#endif
