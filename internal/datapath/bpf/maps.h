/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the datapath. Their layout is the contract between the programs
 * and package datapath; LAYOUT in layout.go names its version.
 *
 * Every address is 16 bytes in network byte order; IPv4 stands in its mapped
 * form (::ffff:a.b.c.d), so one key serves IPv4 sockets and IPv4-mapped IPv6
 * sockets alike. Ports are in network byte order, everything else in host
 * byte order.
 */
#ifndef FAIRLEAD_MAPS_H
#define FAIRLEAD_MAPS_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* Traffic of this node and its pods looks frontends up with SCOPE_INTERNAL,
 * whether their row says "all" or "internal"; rows of scope "external" stand
 * under SCOPE_EXTERNAL. */
#define SCOPE_INTERNAL 0
#define SCOPE_EXTERNAL 1

struct endpoint {
	__be32 address[4];
	__be16 port;
	__u16 pad;
};

struct frontend_key {
	__be32 address[4];
	__be16 port;
	__u8 protocol;
	__u8 scope;
};

/* No value is changed in place. Each repeats its key because the kernel reuses
 * the memory of a deleted element at once, under the eyes of a running program:
 * a reader that finds another key, or a seal that does not fit, has seen an
 * element in the middle of such a change. */
struct frontend {
	struct frontend_key key;
	__u32 set;
	__u32 owner;
	__u32 seal; /* frontend_seal() of the fields above */
};

/* The word is all a program needs to choose a backend. It changes by one
 * 64-bit store: base << 32 | flags << 24 | count. Base is the first slot of
 * the extent, its header; the selectable backends follow it. */
struct set {
	__u64 word;
	__u32 owner;
	__u32 generation; /* grows by one with each store of the word */
	__u32 affinity_seconds;
	__u32 pad[3];
};

#define SET_DROP     (1U << 0) /* without a backend: drop, not reject */
#define SET_AFFINITY (1U << 1)
#define SET_RANGES   (1U << 2) /* only sources in the owner's ranges */

#define WORD_BASE(w)  ((__u32)((w) >> 32))
#define WORD_FLAGS(w) ((__u32)((w) >> 24) & 0xff)
#define WORD_COUNT(w) ((__u32)(w)&0xffffff)

/* A slot holds a backend, or the header of an extent. */
struct backend {
	union {
		__be32 address[4];
		struct {
			__u32 selectable; /* slots base+1 ... base+selectable */
			__u32 total;	  /* draining ones follow, up to base+total */
			__u32 generation;
			__u32 length; /* slots of the extent, header included */
		} header;
	};
	__be16 port;
	__u16 is_header;
	__u32 owner;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
	__uint(max_entries, 1);
} fairlead_frontends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct set);
	__uint(max_entries, 1);
} fairlead_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct backend);
	__uint(max_entries, 1);
} fairlead_backends SEC(".maps");

/* The source ranges of an owner's VIPs (R22). */
struct range_key {
	__u32 prefixlen; /* 32 bits of owner, then up to 128 of address */
	__u32 owner;
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct range_key);
	__type(value, __u32);
	__uint(max_entries, 1);
} fairlead_ranges SEC(".maps");

/* The addresses of this node that serve NodePorts (R24). */
struct node_address {
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct node_address);
	__type(value, __u32);
	__uint(max_entries, 4096);
} fairlead_nodes SEC(".maps");

/* Session affinity (R18). The client is a network namespace on the socket
 * path (its cookie, in client[0] and client[1]) and an address on the wire. */
#define CLIENT_NETNS   1
#define CLIENT_ADDRESS 2

struct affinity_key {
	__be32 client[4];
	__u32 owner;
	__u32 kind;
};

struct affinity {
	struct endpoint backend;
	__u32 owner; /* repeats the key's, see struct frontend */
	__u64 used;  /* nanoseconds of CLOCK_MONOTONIC */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
	__uint(max_entries, 1);
} fairlead_affinity SEC(".maps");

/* What a socket talks to. Freed with the socket. */
struct peer {
	struct endpoint frontend;
	struct endpoint backend;
	__u64 word; /* of the set, when the backend was last known to be in it */
	__u32 owner;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct peer);
} fairlead_peers SEC(".maps");

/* The pairs that unconnected UDP sockets used before that of their peer above,
 * both ways: a pair is noted when the socket turns to another frontend, and
 * the way back alone when the frontend's backend changes. A socket that talks
 * to one frontend, and that to one backend, has none. */
#define UDP_FORWARD 1 /* frontend -> backend */
#define UDP_REVERSE 2 /* backend -> frontend */

struct udp_key {
	__u64 cookie;
	struct endpoint endpoint;
	__u32 direction;
};

struct udp_pair {
	struct endpoint endpoint;
	__u32 owner;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct udp_key);
	__type(value, struct udp_pair);
	__uint(max_entries, 1);
} fairlead_udp SEC(".maps");

/* Refusals: a counter per frontend and reason, and each one as it happens. */
struct refusal_key {
	__be32 address[4];
	__be16 port;
	__u8 protocol;
	__u8 reason;
};

struct refusal {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u64 netns;
	__u32 pid;
	__u32 owner;
	__u32 set;
	__be32 address[4]; /* as dialled */
	__be16 port;
	__u8 protocol;
	__u8 reason;
	__u8 dropped; /* 0: reject */
	__u8 host;    /* the caller is in the node's own namespace */
	__u8 pad[2];
	char command[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct refusal_key);
	__type(value, __u64);
	__uint(max_entries, 16384);
} fairlead_refused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} fairlead_events SEC(".maps");

/* Counters that stand alone; COUNTER_* index it. */
#define COUNTER_EVENTS_LOST	 0 /* the ring buffer was full */
#define COUNTER_AFFINITY_CREATED 1
#define COUNTER_UDP_CREATED	 2
#define COUNTER_MAX		 8

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, COUNTER_MAX);
} fairlead_counters SEC(".maps");

/* Settings that the loader fixes before the program is verified. */
volatile const __u64 host_netns = 0;	 /* cookie of the node's namespace */
volatile const __u8 host_only = 0;	 /* --socket-path=host */
volatile const __u8 have_set_retval = 0; /* else every refusal is EPERM */
volatile const __u8 have_mptcp = 0;	 /* else MPTCP sockets show a backend as peer */

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&fairlead_counters, &which);

	if (n)
		*n += 1;
}

#endif
