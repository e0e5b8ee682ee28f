/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Readers for the stress test: programs that look frontends up with the
 * product's own select.h, thousands of times per call, and check what they
 * get. The writer encodes in each backend which set it belongs to and at
 * which generation it was published, so that one look-up shows a mistake.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

/* A pause after each look-up of a frontend or a slot holds the windows open in
 * which another processor can recycle the element, or the extent that the word
 * names. Not set, it costs nothing. */
volatile const __u32 pause = 0;

static long do_nothing(__u32 i, void *context)
{
	return 0;
}

static __always_inline void *lookup_and_pause(void *map, const void *key, bool held)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (held && pause)
		bpf_loop(pause, do_nothing, NULL, 0);
	return value;
}

#define bpf_map_lookup_elem(map, key)                                                \
	lookup_and_pause(map, key,                                                   \
			 (const void *)(map) == (const void *)&fairlead_frontends || \
				 (const void *)(map) == (const void *)&fairlead_backends)
#include "../bpf/select.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* The frontends are FRONTEND_ADDRESS + 0 … frontends-1, port 80/TCP; the first
 * three words of their addresses, in network byte order, can be set. The
 * backends of service n have the address BACKEND_ADDRESS + n, and the low 16
 * bits of their set's generation as the port. */
#define FRONTEND_ADDRESS 0x0a600000 /* 10.96.0.0 */
#define BACKEND_ADDRESS	 0x0b000000 /* 11.0.0.0 */

volatile const __u32 frontends = 1;
volatile const __be32 network[3] = { 0, 0, MAPPED };
/* Frontend n belongs to service n, and, if rivals is set, at times to service
 * n + rivals instead. */
volatile const __u32 rivals = 0;

/* Whether who looks up is a packet, whose hash asks the Maglev table. */
volatile const __u8 packets = 0;

enum outcome {
	OUTCOME_FORWARD,
	OUTCOME_MISSING,  /* taken for no Service address */
	OUTCOME_FOREIGN,  /* a backend of another Service */
	OUTCOME_MIXED,	  /* of the right set, but not of the generation read */
	OUTCOME_CHANGING, /* refused: changing hands */
	OUTCOME_REFUSED,  /* refused for any other reason */
	OUTCOME_MAX,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, OUTCOME_MAX);
} stress_outcomes SEC(".maps");

static __always_inline int record(__u32 outcome)
{
	__u64 *n = bpf_map_lookup_elem(&stress_outcomes, &outcome);

	if (n)
		*n += 1;
	return 0;
}

static __always_inline __u32 dial(struct selection *s)
{
	__u32 n = (__u32)((__u64)bpf_get_prandom_u32() * frontends >> 32);

	s->wire = packets;
	s->known = ADDRESS_SERVICE;
	s->hash = bpf_get_prandom_u32();
	s->target.address[0] = network[0];
	s->target.address[1] = network[1];
	s->target.address[2] = network[2];
	s->target.address[3] = bpf_htonl(FRONTEND_ADDRESS + n);
	s->target.port = bpf_htons(80);
	s->protocol = 6;
	return n;
}

static __always_inline bool is_foreign(const struct endpoint *e, __u32 frontend)
{
	__u32 service = bpf_ntohl(e->address[3]) - BACKEND_ADDRESS;

	return service != frontend && (!rivals || service != frontend + rivals);
}

/* Whether the slot is of the same owner, service and generation as what was
 * selected. */
static __always_inline bool belongs(const struct selection *s, __u32 slot)
{
	struct endpoint e;

	return read_slot(slot, s->owner, &e) && e.port == s->backend.port &&
	       (bpf_ntohl(e.address[3]) & 0xffffff) == (bpf_ntohl(s->backend.address[3]) & 0xffffff);
}

/* Whether the extent has a Maglev table if and only if the word says so, and
 * the table's last slot is of the same owner. */
static __always_inline bool has_its_table(const struct selection *s, const struct backend *header)
{
	__u32 last = WORD_BASE(s->word) + header->header.length - 1;
	struct backend *b;

	if (!(WORD_FLAGS(s->word) & SET_MAGLEV))
		return header->port == 0;
	b = bpf_map_lookup_elem(&fairlead_backends, &last);
	return header->port != 0 && b && b->kind == SLOT_MAGLEV && b->owner == s->owner;
}

/* The word that was read names an extent that nobody may reuse while this
 * program runs: header, first and last slot are all of one publication. */
static __always_inline bool is_mixed(const struct selection *s)
{
	__u32 base = WORD_BASE(s->word), n = WORD_COUNT(s->word);
	struct backend *header = bpf_map_lookup_elem(&fairlead_backends, &base);

	if (!header || header->kind != SLOT_HEADER || header->owner != s->owner ||
	    header->header.selectable != n || header->header.total < n ||
	    (header->header.generation & 0xffff) != bpf_ntohs(s->backend.port))
		return true;
	return !belongs(s, base + 1) || !belongs(s, base + header->header.total) ||
	       !has_its_table(s, header);
}

SEC("tc")
int stress_reader(struct __sk_buff *skb)
{
	struct selection s = {};
	__u32 n = dial(&s);

	switch (select_backend(&s, NULL)) {
	case VERDICT_FORWARD:
		break;
	case VERDICT_REFUSE:
		return record(s.reason == REASON_CHANGING ? OUTCOME_CHANGING : OUTCOME_REFUSED);
	default:
		return record(OUTCOME_MISSING);
	}
	if (is_foreign(&s.backend, n))
		return record(OUTCOME_FOREIGN);
	if (is_mixed(&s))
		return record(OUTCOME_MIXED);
	return record(OUTCOME_FORWARD);
}

#define ETH_HLEN 14

/* The low 24 bits of the backend that the first frontend has for the hash that
 * stands behind the Ethernet header; NO_BACKEND if it has none. */
#define NO_BACKEND 0xffffffff

SEC("tc")
int stress_chooser(struct __sk_buff *skb)
{
	struct selection s = {};

	dial(&s);
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &s.hash, sizeof(s.hash)))
		return NO_BACKEND;
	if (select_backend(&s, NULL) != VERDICT_FORWARD)
		return NO_BACKEND;
	return bpf_ntohl(s.backend.address[3]) & 0xffffff;
}

/* What a proxy would do that trusts every element it is handed: no key, no
 * seal and no owner is compared. It shows what the checks are for. */
SEC("tc")
int stress_trusting_reader(struct __sk_buff *skb)
{
	struct frontend_key key = { .protocol = 6, .scope = SCOPE_INTERNAL, .port = bpf_htons(80) };
	struct selection s = {};
	__u32 n = dial(&s), at;
	struct frontend *f;
	struct backend *b;
	struct set *set;

	__builtin_memcpy(key.address, s.target.address, sizeof(key.address));
	f = bpf_map_lookup_elem(&fairlead_frontends, &key);
	if (!f)
		return record(OUTCOME_MISSING);
	at = f->set;
	set = bpf_map_lookup_elem(&fairlead_sets, &at);
	if (!set)
		return record(OUTCOME_REFUSED);
	s.word = READ_ONCE(set->word);
	if (!WORD_COUNT(s.word))
		return record(OUTCOME_REFUSED);
	at = WORD_BASE(s.word) + 1;
	b = bpf_map_lookup_elem(&fairlead_backends, &at);
	if (!b)
		return record(OUTCOME_REFUSED);
	__builtin_memcpy(s.backend.address, b->address, sizeof(s.backend.address));
	return record(is_foreign(&s.backend, n) ? OUTCOME_FOREIGN : OUTCOME_FORWARD);
}
