/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From an address to a backend: find the frontend, read its set, choose.
 *
 * A plain connection costs one hash look-up and two array reads (set, slot);
 * to an address of this node two hash look-ups more; to an address that is no
 * Service's three hash look-ups in all. Affinity adds an LRU
 * look-up and a binary search. An unconnected UDP socket that repeats itself
 * searches its set; with affinity it adds the LRU look-up.
 */
#ifndef FAIRLEAD_SELECT_H
#define FAIRLEAD_SELECT_H

#include "address.h"
#include "maps.h"
#include "ranges.h"

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

#define barrier() asm volatile("" ::: "memory")

/* Sets hold at most 1 << SEARCH_STEPS selectable or draining backends
 * (MaxBackendsPerSet in Go). */
#define SEARCH_STEPS 17

enum verdict {
	VERDICT_PASS,	/* no Service address: untouched */
	VERDICT_FORWARD,
	VERDICT_REFUSE, /* selection.reason and .dropped say how */
	VERDICT_AGAIN,	/* saw an element in the middle of a change */
};

/* Reasons of a refusal; their words are in events.go. */
enum reason {
	REASON_NO_ENDPOINT = 1,	      /* R13 */
	REASON_NO_LOCAL_ENDPOINT = 2, /* R10 */
	REASON_SOURCE_RANGE = 3,      /* R22 */
	REASON_SOURCE_UNKNOWN = 4,    /* R22, where nothing sees the packets of sockets */
	REASON_CHANGING = 5,	      /* two tries met a change in the making */
	REASON_UNKNOWN_PORT = 6,      /* R38, of a known ClusterIP */
	REASON_UNALLOCATED = 7,	      /* R38, in a service CIDR */
	REASON_NO_PORT = 8,	      /* none is free for the backend to see */
	REASON_NO_FLOW = 9,	      /* amid a connection that is not known here */
};

struct selection {
	struct endpoint target; /* in: as dialled */
	struct endpoint backend;
	__u64 word;
	__u32 set;
	__u32 owner;
	__u8 protocol;
	__u8 reason;
	__u8 dropped;
	__u8 wire;	  /* a packet rather than a socket */
	__u8 outside;	  /* of a packet: it came from another machine */
	__u8 unchecked;	  /* of a socket: its packets will show the source */
	__u8 pad[2];
	__u32 hash;	  /* of a packet: chooses from a Maglev table */
	__u32 known;	  /* of a packet: what is known of the target (ADDRESS_*) */
	__u64 netns;	  /* of a socket */
	__be32 source[4]; /* of a packet, or bound; all zero if not bound */
};

static __always_inline bool same_key(const struct frontend_key *a, const struct frontend_key *b)
{
	return a->address[0] == b->address[0] && a->address[1] == b->address[1] &&
	       a->address[2] == b->address[2] && a->address[3] == b->address[3] &&
	       a->port == b->port && a->protocol == b->protocol && a->scope == b->scope;
}

/* frontend_seal in layout.go computes the same. */
static __always_inline __u32 frontend_seal(const struct frontend_key *k, __u32 set, __u32 owner)
{
	__u32 h = 0x9e3779b1 ^ k->address[0];

	h = h * 0x85ebca6b ^ k->address[1];
	h = h * 0x85ebca6b ^ k->address[2];
	h = h * 0x85ebca6b ^ k->address[3];
	h = h * 0x85ebca6b ^ ((__u32)k->port << 16 | (__u32)k->protocol << 8 | k->scope);
	h = h * 0x85ebca6b ^ set;
	h = h * 0x85ebca6b ^ owner;
	return h;
}

/* What is known of an address (ADDRESS_*). */
static __always_inline __u32 known_of(const __be32 *address)
{
	struct address a;
	__u32 *flags;

	__builtin_memcpy(&a, address, sizeof(a));
	flags = bpf_map_lookup_elem(&fairlead_addresses, &a);
	return flags ? *flags : 0;
}

/* What is known of the dialled address. A pod's own loopback is
 * its own, and no packet from the wire is for ours; another node's address is
 * left alone (R24). */
static __always_inline __u32 address_flags(const struct selection *s)
{
	if (s->wire)
		return s->known;
	if (is_loopback(s->target.address))
		return s->netns == host_netns ? ADDRESS_NODEPORT : 0;
	return known_of(s->target.address);
}

/* The kernel replaces an element by linking the new one in at the head of its
 * bucket before it takes the old one out. A look-up that has passed the head
 * but not yet the old one finds neither. A second look finds the new one, and
 * is sure: the writer does not replace that one in turn before every program
 * that was running has ended (replace in frontends.go). */
static __always_inline const struct frontend *look_twice(const struct frontend_key *key)
{
	const struct frontend *f = bpf_map_lookup_elem(&fairlead_frontends, key);

	if (f)
		return f;
	return bpf_map_lookup_elem(&fairlead_frontends, key);
}

/* A row of scope "all" stands under SCOPE_INTERNAL for packets from outside,
 * too. */
static __always_inline const struct frontend *find_scope(const struct selection *s,
							 struct frontend_key *key)
{
	const struct frontend *f;

	if (s->outside) {
		key->scope = SCOPE_EXTERNAL;
		f = look_twice(key);
		if (f)
			return f;
	}
	key->scope = SCOPE_INTERNAL;
	return look_twice(key);
}

/* R38: nothing else answers at a ClusterIP, so what no frontend takes is
 * refused rather than sent to wherever the default route leads. */
static __always_inline enum verdict refuse_unknown(struct selection *s, __u32 flags)
{
	if (flags & ADDRESS_CLUSTER_IP) {
		s->dropped = 0;
		s->reason = REASON_UNKNOWN_PORT;
		return VERDICT_REFUSE;
	}
	if (flags || !in_service_cidrs(s->target.address))
		return VERDICT_PASS;
	s->dropped = 1;
	s->reason = REASON_UNALLOCATED;
	return VERDICT_REFUSE;
}

/* The frontend that the dialled address means, or the verdict where none does.
 * A socket's address is most often a Service's, a packet's most often not: the
 * one is looked up at once, the other after what is known of the address. */
static __always_inline const struct frontend *find_frontend(struct selection *s,
							    struct frontend_key *key,
							    enum verdict *missing)
{
	const struct frontend *f;
	__u32 flags = ADDRESS_SERVICE;

	__builtin_memcpy(key->address, s->target.address, sizeof(key->address));
	key->port = s->target.port;
	key->protocol = s->protocol;
	if (s->wire)
		flags = address_flags(s);
	/* The unspecified address is loopback here, not the wildcard's key. */
	if (flags & ADDRESS_SERVICE && !is_unspecified(key->address)) {
		f = find_scope(s, key);
		if (f)
			return f;
	}
	if (!s->wire)
		flags = address_flags(s);
	if (flags & ADDRESS_NODEPORT) {
		if (is_v4(key->address)) {
			key->address[3] = 0;
		} else {
			key->address[0] = 0;
			key->address[1] = 0;
			key->address[2] = 0;
			key->address[3] = 0;
		}
		f = find_scope(s, key);
		if (f)
			return f;
	}
	*missing = refuse_unknown(s, flags);
	return NULL;
}

/* The borrow of a - b - c, without a branch. */
static __always_inline __u64 borrow(__u64 a, __u64 b, __u64 c)
{
	return ((~a & b) | (~(a ^ b) & (a - b - c))) >> 63;
}

static __always_inline __u64 address_half(const __be32 *a)
{
	return (__u64)bpf_ntohl(a[0]) << 32 | bpf_ntohl(a[1]);
}

/* Finds a backend among n slots that are sorted by address and port and start
 * at first; returns its slot, or 0. Every step halves n. The comparison has no
 * branch, and its result is hidden from the verifier, so that it follows one
 * path through the steps rather than two at each. */
static __noinline __u32 find_slot(__u32 first, __u32 n, const struct endpoint *want)
{
	__u64 high, low, port;
	struct backend *b;
	__u32 at = first;
	int i;

	if (!n || !want)
		return 0;
	high = address_half(want->address);
	low = address_half(want->address + 2);
	port = bpf_ntohs(want->port);
#pragma unroll
	for (i = 0; i < SEARCH_STEPS; i++) {
		__u32 half = n >> 1;
		__u32 middle = at + half;
		__u64 less;
		__u32 mask;

		if (n <= 1)
			break;
		b = bpf_map_lookup_elem(&fairlead_backends, &middle);
		if (!b)
			return 0;
		/* less = want < *b */
		less = borrow(port, bpf_ntohs(b->port), 0);
		less = borrow(low, address_half(b->address + 2), less);
		less = borrow(high, address_half(b->address), less);
		mask = (__u32)less - 1;
		asm volatile("" : "+r"(mask));
		at += half & mask;
		n -= half;
	}
	b = bpf_map_lookup_elem(&fairlead_backends, &at);
	if (!b)
		return 0;
	if (address_half(b->address) != high || address_half(b->address + 2) != low ||
	    b->port != want->port)
		return 0;
	return at;
}

/* Reads a slot if it still belongs to the owner. */
static __always_inline bool read_slot(__u32 slot, __u32 owner, struct endpoint *out)
{
	struct backend *b = bpf_map_lookup_elem(&fairlead_backends, &slot);

	if (!b || READ_ONCE(b->owner) != owner || b->kind != SLOT_BACKEND)
		return false;
	__builtin_memcpy(out->address, b->address, sizeof(out->address));
	out->port = b->port;
	out->pad = 0;
	return true;
}

/* Whether an endpoint is selectable in the set of this selection. */
static __always_inline bool is_selectable(const struct selection *s, const struct endpoint *e)
{
	return find_slot(WORD_BASE(s->word) + 1, WORD_COUNT(s->word), e) != 0;
}

/* Whether an endpoint is in the set at all, draining included: what is open
 * to it goes on (R9). */
static __always_inline bool is_member(const struct selection *s, const struct endpoint *e)
{
	__u32 base = WORD_BASE(s->word), selectable, total;
	struct backend *header;

	if (is_selectable(s, e))
		return true;
	header = bpf_map_lookup_elem(&fairlead_backends, &base);
	if (!base || !header || header->kind != SLOT_HEADER || header->owner != s->owner)
		return false;
	selectable = header->header.selectable;
	total = header->header.total;
	if (total <= selectable)
		return false;
	return find_slot(base + 1 + selectable, total - selectable, e) != 0;
}

/* R22. A socket that is not bound has no source yet. Once it is translated the
 * kernel may choose another one than on the way to the VIP: what this node
 * sends counts as coming from its primary address, as if nothing were
 * translated, and what a pod sends is seen again in source.c. */
static __always_inline enum verdict check_source(struct selection *s)
{
	bool bound = s->wire || !is_unspecified(s->source), host = s->netns == host_netns;

	s->dropped = 1;
	s->reason = REASON_SOURCE_RANGE;
	if (bound && may_come_from(s->owner, s->source, s->target.address))
		return VERDICT_FORWARD;
	if (bound)
		return VERDICT_REFUSE;
	if (host && node_in_ranges(s->owner, is_v4(s->target.address)))
		return VERDICT_FORWARD;
	if (host)
		return VERDICT_REFUSE;
	s->unchecked = have_source_check;
	s->reason = REASON_SOURCE_UNKNOWN;
	return have_source_check ? VERDICT_FORWARD : VERDICT_REFUSE;
}

/* What the extent's Maglev table says for the hash: the index of a backend.
 * Every node makes the same table of the same backends. */
static __always_inline bool look_in_table(const struct selection *s, __u32 *index)
{
	__u32 at = WORD_BASE(s->word), entries, entry;
	struct backend *b = bpf_map_lookup_elem(&fairlead_backends, &at);

	if (!b || READ_ONCE(b->owner) != s->owner || b->kind != SLOT_HEADER || !b->port)
		return false;
	entries = b->port;
	entry = (__u32)((__u64)s->hash * entries >> 32);
	at += 1 + b->header.total + entry / MAGLEV_PER_SLOT;
	b = bpf_map_lookup_elem(&fairlead_backends, &at);
	if (!b || READ_ONCE(b->owner) != s->owner || b->kind != SLOT_MAGLEV)
		return false;
	*index = b->maglev[entry % MAGLEV_PER_SLOT];
	return *index < WORD_COUNT(s->word);
}

/* Chooses among all selectable backends with equal chance, or, where a packet
 * is to choose alike on every node, by its hash. */
static __always_inline enum verdict choose(struct selection *s)
{
	__u32 n = WORD_COUNT(s->word);
	__u32 i = (__u32)((__u64)bpf_get_prandom_u32() * n >> 32);

	if (s->wire && WORD_FLAGS(s->word) & SET_MAGLEV && !look_in_table(s, &i))
		return VERDICT_AGAIN;
	if (!read_slot(WORD_BASE(s->word) + 1 + i, s->owner, &s->backend))
		return VERDICT_AGAIN;
	return VERDICT_FORWARD;
}

static __always_inline struct affinity_key affinity_key(const struct selection *s)
{
	struct affinity_key key = { .owner = s->owner, .kind = CLIENT_NETNS };

	if (s->wire) {
		__builtin_memcpy(key.client, s->source, sizeof(key.client));
		key.kind = CLIENT_ADDRESS;
		return key;
	}
	key.client[0] = (__u32)s->netns;
	key.client[1] = (__u32)(s->netns >> 32);
	return key;
}

/* Use refreshes an entry (R18); that is worth an update only now and then. */
static __always_inline void refresh(const struct affinity_key *key, struct affinity *entry,
				    __u64 now, __u64 timeout)
{
	if (now - entry->used <= timeout >> 6)
		return;
	entry->used = now;
	bpf_map_update_elem(&fairlead_affinity, key, entry, BPF_ANY);
}

/* A socket that keeps its backend by itself uses the client's entry too, as
 * long as that names the same one. */
static __always_inline void refresh_kept(const struct selection *s, __u32 seconds)
{
	__u64 now = bpf_ktime_get_ns(), timeout = (__u64)seconds * 1000000000ULL;
	struct affinity_key key = affinity_key(s);
	struct affinity entry = {}, *known = bpf_map_lookup_elem(&fairlead_affinity, &key);

	if (!known)
		return;
	entry = *known;
	if (entry.owner == s->owner && now - entry.used < timeout &&
	    same_endpoint(&entry.backend, &s->backend))
		refresh(&key, &entry, now, timeout);
}

/* R18, R19: the client's last backend, as long as it is selectable and the
 * client did not stay away for longer than the timeout. */
static __always_inline enum verdict choose_with_affinity(struct selection *s, __u32 seconds)
{
	__u64 now = bpf_ktime_get_ns(), timeout = (__u64)seconds * 1000000000ULL;
	struct affinity_key key = affinity_key(s);
	struct affinity entry = {}, *known = bpf_map_lookup_elem(&fairlead_affinity, &key);
	enum verdict v;

	if (known) {
		entry = *known;
		if (entry.owner == s->owner && now - entry.used < timeout &&
		    is_selectable(s, &entry.backend)) {
			s->backend = entry.backend;
			refresh(&key, &entry, now, timeout);
			return VERDICT_FORWARD;
		}
	}
	v = choose(s);
	if (v != VERDICT_FORWARD)
		return v;
	entry.backend = s->backend;
	entry.owner = s->owner;
	entry.used = now;
	if (bpf_map_update_elem(&fairlead_affinity, &key, &entry, BPF_ANY) == 0 && !known)
		count(COUNTER_AFFINITY_CREATED);
	return VERDICT_FORWARD;
}

/* One try at a selection. If prefer is set and its backend is still in the
 * set, that one is kept. It is not static so that the verifier looks at it once,
 * whoever calls it. */
__noinline int select_once(struct selection *s, const struct peer *prefer)
{
	const struct frontend *found;
	struct frontend_key key = {};
	struct frontend f;
	enum verdict missing = VERDICT_PASS;
	struct set *set;
	__u32 flags, seconds;

	if (!s)
		return VERDICT_PASS;
	found = find_frontend(s, &key, &missing);
	if (!found)
		return missing;
	f = *found;
	if (!same_key(&f.key, &key) || f.seal != frontend_seal(&key, f.set, f.owner))
		return VERDICT_AGAIN;
	set = bpf_map_lookup_elem(&fairlead_sets, &f.set);
	if (!set)
		return VERDICT_AGAIN;
	s->set = f.set;
	s->owner = f.owner;
	s->word = READ_ONCE(set->word);
	seconds = READ_ONCE(set->affinity_seconds);
	if (READ_ONCE(set->owner) != f.owner)
		return VERDICT_AGAIN;

	flags = WORD_FLAGS(s->word);
	if (flags & SET_RANGES && check_source(s) != VERDICT_FORWARD)
		return VERDICT_REFUSE;
	/* A word says nothing of backends that were known under it before: extents
	 * are used again, so it may come back with others. */
	if (prefer && prefer->owner == s->owner && is_member(s, &prefer->backend)) {
		s->backend = prefer->backend;
		if (flags & SET_AFFINITY)
			refresh_kept(s, seconds);
		return VERDICT_FORWARD;
	}
	if (!WORD_COUNT(s->word)) {
		s->dropped = (flags & SET_DROP) != 0;
		s->reason = s->dropped ? REASON_NO_LOCAL_ENDPOINT : REASON_NO_ENDPOINT;
		return VERDICT_REFUSE;
	}
	if (flags & SET_AFFINITY)
		return choose_with_affinity(s, seconds);
	return choose(s);
}

/* The element of a frontend is replaced only while its address changes hands
 * between Services, so a second look is all it takes; a third is not tried. */
static __always_inline enum verdict select_backend(struct selection *s, const struct peer *prefer)
{
	int v = select_once(s, prefer);

	if (v != VERDICT_AGAIN)
		return v;
	v = select_once(s, prefer);
	if (v != VERDICT_AGAIN)
		return v;
	s->reason = REASON_CHANGING;
	s->dropped = 1;
	return VERDICT_REFUSE;
}

#endif
