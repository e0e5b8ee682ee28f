/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connection tracking of the packet path. A packet of a flow that is confirmed
 * costs one look-up; one of an unconfirmed flow, or of none, a second.
 */
#ifndef FAIRLEAD_FLOW_H
#define FAIRLEAD_FLOW_H

#include "packet.h"

#define SECOND 1000000000ULL

/* How long a flow is kept without a packet. timeouts in flows.go says the same. */
#define TIMEOUT_TCP	    (24 * 3600 * SECOND)
#define TIMEOUT_TCP_HALF    (3600 * SECOND) /* one side has ended */
#define TIMEOUT_TCP_CLOSED  (60 * SECOND)   /* both have, or one has reset it */
#define TIMEOUT_TCP_EMBRYO  (60 * SECOND)
#define TIMEOUT_UDP	    (120 * SECOND)
#define TIMEOUT_UDP_EMBRYO  (30 * SECOND)
/* An embryo, or a flow that is over, gives its port away when nobody has used
 * it for so long, to who finds no other. */
#define YIELDS (3 * SECOND)

/* How far beyond the backend's first byte the client's acknowledgement may be
 * to confirm a flow. Who cannot see the backend's answer guesses that once in
 * some four thousand times. */
#define CONFIRMING_WINDOW (1U << 20)

#define FLOW_ENDED (FLOW_FIN_CLIENT | FLOW_FIN_SERVER)

/* How far beyond what one side has acknowledged the other one may be, and how
 * far a segment that is sent again may begin before that. */
#define CREDIBLE_WINDOW (1U << 24)
#define CREDIBLE_BEHIND (1U << 16)

/* What must hold of an element as a whole, see struct frontend. */
static __always_inline __u32 flow_seal(const struct flow_key *key, const struct flow *f)
{
	const __u64 *k = (const __u64 *)key, *v = (const __u64 *)f;
	__u64 h = (__u64)f->flags << 40 | (__u64)f->at << 32 | f->set;

	h *= 0x9e3779b97f4a7c15ULL;
	h += k[0] * 0xbf58476d1ce4e5b9ULL + k[1] * 0x94d049bb133111ebULL +
	     k[2] * 0xd6e8feb86659fd93ULL + k[3] * 0xa0761d6478bd642fULL +
	     k[4] * 0xe7037ed1a0b428dbULL;
	h += v[0] * 0x8ebc6af09c88c6e3ULL + v[1] * 0x589965cc75374cc3ULL +
	     v[2] * 0x1d8e4e27c47d124fULL + v[3] * 0xeb44accab455d165ULL +
	     v[4] * 0x2545f4914f6cdd1dULL;
	return (__u32)(h >> 32) ^ (__u32)h;
}

static __always_inline struct flow *find_confirmed(const struct flow_key *k)
{
	if (k->protocol == IPPROTO_UDP)
		return bpf_map_lookup_elem(&fairlead_datagrams, k);
	return bpf_map_lookup_elem(&fairlead_flows, k);
}

static __always_inline struct flow *find_embryo(const struct flow_key *k)
{
	return bpf_map_lookup_elem(&fairlead_embryos, k);
}

/* Takes a copy of the packet's flow into p->flow. */
static __always_inline bool take_flow(const struct flow *f, struct packet *p)
{
	if (!f)
		return false;
	/* In this order, for the seal is of what is copied last. */
	if (f->flags & FLOW_REDIRECT)
		p->flow.path = f->path;
	barrier();
	__builtin_memcpy(&p->flow, f, offsetof(struct flow, path));
	return p->flow.seal == flow_seal(&p->key, &p->flow);
}

/* The key of the direction that is not this one. */
static __always_inline void set_other(struct packet *p)
{
	__builtin_memcpy(p->other.source, p->flow.target, sizeof(p->other.source));
	__builtin_memcpy(p->other.target, p->flow.source, sizeof(p->other.target));
	p->other.source_port = p->flow.target_port;
	p->other.target_port = p->flow.source_port;
	p->other.protocol = p->key.protocol;
	p->other.at = p->flow.at;
	p->other.pad = 0;
}

static __always_inline __u64 timeout_of(const struct flow *f, __u8 protocol, bool embryo)
{
	if (protocol == IPPROTO_UDP)
		return embryo ? TIMEOUT_UDP_EMBRYO : TIMEOUT_UDP;
	if (f->state & FLOW_RESET || (f->state & FLOW_ENDED) == FLOW_ENDED)
		return TIMEOUT_TCP_CLOSED;
	if (embryo)
		return TIMEOUT_TCP_EMBRYO;
	return f->state & FLOW_ENDED ? TIMEOUT_TCP_HALF : TIMEOUT_TCP;
}

/* Another processor's clock may be ahead by a little. */
static __always_inline __u64 age_of(const struct flow *f)
{
	__s64 age = bpf_ktime_get_coarse_ns() - f->used;

	return age > 0 ? age : 0;
}

/* What tells a publication of a set from all others. The word alone does not:
 * an extent is used again. */
static __always_inline __u64 stamp_of(const struct set *set, __u64 word)
{
	return word + READ_ONCE(set->generation) * 0x9e3779b97f4a7c15ULL;
}

/* Whether the flow's backend still is in its set, draining ones included (R9).
 * As long as the set's stamp is the one that was seen last, nothing is searched. */
static __always_inline bool has_backend(struct flow *f, struct packet *p)
{
	__u64 stamp;
	__u32 id = p->flow.set;
	struct set *set = bpf_map_lookup_elem(&fairlead_sets, &id);

	if (!set || READ_ONCE(set->owner) != p->flow.owner)
		return false;
	p->selection.word = READ_ONCE(set->word);
	stamp = stamp_of(set, p->selection.word);
	if (stamp == p->flow.stamp)
		return true;
	p->selection.owner = p->flow.owner;
	__builtin_memcpy(p->selection.backend.address, p->flow.target,
			 sizeof(p->selection.backend.address));
	p->selection.backend.port = p->flow.target_port;
	p->selection.backend.pad = 0;
	if (!is_member(&p->selection, &p->selection.backend))
		return false;
	f->stamp = stamp;
	return true;
}

/* Whether the element is the other direction of a flow with this key. */
static __always_inline bool answers(const struct flow *f, const struct flow_key *k)
{
	return same_address(f->target, k->source) && same_address(f->source, k->target) &&
	       f->target_port == k->source_port && f->source_port == k->target_port;
}

/* Whether no packet of the flow has come for too long, in either direction. */
static __noinline int has_timed_out(struct packet *p, __u32 embryo)
{
	__u64 timeout;
	struct flow *f;

	if (!p)
		return true;
	timeout = timeout_of(&p->flow, p->key.protocol, embryo);
	if (age_of(&p->flow) <= timeout)
		return false;
	set_other(p);
	f = embryo ? find_embryo(&p->other) : find_confirmed(&p->other);
	return !f || !answers(f, &p->key) || age_of(f) > timeout;
}

/* Whether the packet goes on in this flow. One that opens a connection anew
 * does not if the old one is over; neither it nor a datagram does if the
 * backend is gone (R35). What is amid a connection goes on, whatever became of
 * the endpoint (R9). */
static __always_inline bool goes_on(struct flow *f, struct packet *p, bool embryo)
{
	if (p->flow.flags & FLOW_REPLY)
		return true;
	if (p->key.protocol == IPPROTO_UDP) {
		if (has_timed_out(p, embryo))
			return false;
		if (has_backend(f, p))
			return true;
		count(COUNTER_RELEASED);
		return false;
	}
	if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return true;
	if (p->flow.state & FLOW_RESET || (p->flow.state & FLOW_ENDED) == FLOW_ENDED ||
	    has_timed_out(p, embryo))
		return false;
	return has_backend(f, p);
}

static __always_inline void delete_confirmed(const struct flow_key *k)
{
	if (k->protocol == IPPROTO_UDP) {
		if (!bpf_map_delete_elem(&fairlead_datagrams, k))
			count(COUNTER_DATAGRAMS_DELETED);
		return;
	}
	if (!bpf_map_delete_elem(&fairlead_flows, k))
		count(COUNTER_FLOWS_DELETED);
}

/* Forgets both directions of the packet's flow. */
static __noinline int forget_flow(struct packet *p)
{
	if (!p)
		return 0;
	set_other(p);
	delete_confirmed(&p->key);
	delete_confirmed(&p->other);
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->key))
		count(COUNTER_EMBRYOS_DELETED);
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->other))
		count(COUNTER_EMBRYOS_DELETED);
	return 0;
}

/* Whether a segment may be one that the other side takes: whether it begins
 * within a window of what that side has acknowledged last (R36). Before a flow
 * is confirmed nobody knows. */
static __always_inline bool is_credible(const struct packet *p, const struct flow *other, bool confirmed)
{
	return !confirmed || p->sequence - other->sequence + CREDIBLE_BEHIND < CREDIBLE_WINDOW;
}

/* Notes in both directions that one side has ended the connection. A packet
 * that neither ends nor resets takes a reset back: whoever sent that one was
 * not believed. */
static __noinline int note_end(struct packet *p)
{
	__u8 bit = p->flow.flags & FLOW_REPLY ? FLOW_FIN_SERVER : FLOW_FIN_CLIENT;
	struct flow *f, *g;
	bool confirmed;

	if (!p)
		return 0;
	set_other(p);
	f = bpf_map_lookup_elem(&fairlead_flows, &p->key);
	g = bpf_map_lookup_elem(&fairlead_flows, &p->other);
	confirmed = f && g;
	if (!confirmed) {
		f = bpf_map_lookup_elem(&fairlead_embryos, &p->key);
		g = bpf_map_lookup_elem(&fairlead_embryos, &p->other);
	}
	if (!f || !g)
		return 0;
	if (p->tcp_flags & (TCP_RST | TCP_FIN) && !is_credible(p, g, confirmed))
		return 0;
	if (p->tcp_flags & TCP_RST) {
		f->state |= FLOW_RESET;
		g->state |= FLOW_RESET;
	} else {
		f->state &= ~FLOW_RESET;
		g->state &= ~FLOW_RESET;
	}
	if (p->tcp_flags & TCP_FIN) {
		f->state |= bit;
		g->state |= bit;
	}
	return 0;
}

static __always_inline void note_packet(struct flow *f, struct packet *p, bool embryo)
{
	if (age_of(&p->flow) > SECOND)
		f->used = bpf_ktime_get_coarse_ns();
	if (p->key.protocol != IPPROTO_TCP || p->fragment == LATER_FRAGMENT)
		return;
	if (p->tcp_flags & (TCP_FIN | TCP_RST) || p->flow.state & FLOW_RESET)
		note_end(p);
	if (!embryo && (p->tcp_flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		f->sequence = p->acknowledged;
}

static __always_inline void note_answer(struct flow *f, struct packet *p)
{
	if (p->key.protocol == IPPROTO_TCP) {
		if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK))
			return;
		f->sequence = p->sequence;
	}
	f->state |= FLOW_ANSWERED;
}

static __always_inline bool put_confirmed(const struct flow_key *k, const struct flow *f)
{
	if (k->protocol == IPPROTO_UDP) {
		if (bpf_map_update_elem(&fairlead_datagrams, k, f, BPF_ANY))
			return false;
		count(COUNTER_DATAGRAMS_CREATED);
		return true;
	}
	if (bpf_map_update_elem(&fairlead_flows, k, f, BPF_ANY))
		return false;
	count(COUNTER_FLOWS_CREATED);
	return true;
}

/* Moves a flow to the confirmed ones if the client has shown that it has seen
 * the backend's answer. The direction that a packet may be on meanwhile is
 * found in one of the two maps at any time. */
static __noinline int confirm(struct packet *p)
{
	struct flow *reply;

	if (!p)
		return 0;
	if (p->key.protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK)
		return 0;
	set_other(p);
	reply = bpf_map_lookup_elem(&fairlead_embryos, &p->other);
	if (!reply)
		return 0;
	p->reply = *reply;
	if (p->reply.seal != flow_seal(&p->other, &p->reply) || !(p->reply.state & FLOW_ANSWERED))
		return 0;
	if (p->key.protocol == IPPROTO_TCP &&
	    p->acknowledged - p->reply.sequence - 1 >= CONFIRMING_WINDOW)
		return 0;
	/* The packet itself may have changed them: it may be the client's last. */
	p->flow.state = p->reply.state;
	p->flow.sequence = p->acknowledged;
	/* Else take_flow has left what another packet had there. */
	if (!(p->flow.flags & FLOW_REDIRECT))
		__builtin_memset(&p->flow.path, 0, sizeof(p->flow.path));
	p->reply.sequence = p->sequence;
	p->flow.used = bpf_ktime_get_coarse_ns();
	if (!put_confirmed(&p->other, &p->reply) || !put_confirmed(&p->key, &p->flow))
		return 0;
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->key))
		count(COUNTER_EMBRYOS_DELETED);
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->other))
		count(COUNTER_EMBRYOS_DELETED);
	return 0;
}

/* Whether nobody needs the element under p->other any more, which then is
 * gone, with its other direction. */
static __noinline int take_over(struct packet *p, bool embryo, bool yields)
{
	struct flow_key forward = {};
	struct flow *f, old;
	__u64 kept;

	if (!p)
		return false;
	f = embryo ? find_embryo(&p->other) : find_confirmed(&p->other);
	if (!f)
		return true;
	old = *f;
	if (old.seal != flow_seal(&p->other, &old))
		return false;
	__builtin_memcpy(forward.source, old.target, sizeof(forward.source));
	__builtin_memcpy(forward.target, old.source, sizeof(forward.target));
	forward.source_port = old.target_port;
	forward.target_port = old.source_port;
	forward.protocol = p->key.protocol;
	forward.at = old.at;
	f = embryo ? find_embryo(&forward) : find_confirmed(&forward);
	if (f && f->used > old.used)
		old.used = f->used;
	kept = timeout_of(&old, p->key.protocol, embryo);
	if (yields && kept <= TIMEOUT_TCP_CLOSED && (embryo || p->key.protocol == IPPROTO_TCP))
		kept = YIELDS;
	if (age_of(&old) <= kept &&
	    /* The same client at the same address: its other direction was
	     * evicted, or it is being opened on another processor. */
	    !answers(&old, &p->key))
		return false;
	if (!embryo) {
		delete_confirmed(&forward);
		delete_confirmed(&p->other);
		return true;
	}
	if (!bpf_map_delete_elem(&fairlead_embryos, &forward))
		count(COUNTER_EMBRYOS_DELETED);
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->other))
		count(COUNTER_EMBRYOS_DELETED);
	return true;
}

/* Writes the other direction's element, if there is none of that key. */
static __always_inline bool write_reply(struct packet *p)
{
	if (bpf_map_update_elem(&fairlead_embryos, &p->other, &p->reply, BPF_NOEXIST))
		return false;
	count(COUNTER_EMBRYOS_CREATED);
	return true;
}

/* Takes the other direction's key for this flow, if no flow has it; one that
 * is over has to yield if that is asked for. In this order, one that is
 * confirmed meanwhile is seen in one of the two maps. */
static __always_inline bool claim(struct packet *p, bool yields)
{
	p->reply.seal = flow_seal(&p->other, &p->reply);
	if (!write_reply(p) &&
	    (!take_over(p, true, yields) || !write_reply(p)))
		return false;
	if (take_over(p, false, yields))
		return true;
	if (!bpf_map_delete_elem(&fairlead_embryos, &p->other))
		count(COUNTER_EMBRYOS_DELETED);
	return false;
}

static __always_inline struct fragment_key fragment_key(const struct packet *p)
{
	struct fragment_key key = { .id = p->fragment_id, .protocol = p->key.protocol, .at = p->key.at };

	__builtin_memcpy(key.source, p->key.source, sizeof(key.source));
	__builtin_memcpy(key.target, p->key.target, sizeof(key.target));
	return key;
}

/* Lets the fragments that follow the first one find their ports. */
static __noinline int remember_ports(struct packet *p)
{
	struct fragment_key key;
	struct fragment ports;

	if (!p)
		return 0;
	key = fragment_key(p);
	ports.source_port = p->key.source_port;
	ports.target_port = p->key.target_port;
	bpf_map_update_elem(&fairlead_fragments, &key, &ports, BPF_ANY);
	return 0;
}

static __noinline int recall_ports(struct packet *p)
{
	struct fragment_key key;
	struct fragment *ports;

	if (!p)
		return 0;
	key = fragment_key(p);
	ports = bpf_map_lookup_elem(&fairlead_fragments, &key);
	if (!ports)
		return 0;
	p->key.source_port = ports->source_port;
	p->key.target_port = ports->target_port;
	return 0;
}

#endif
