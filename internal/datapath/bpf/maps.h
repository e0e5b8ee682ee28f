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
#define SET_MAGLEV   (1U << 3) /* the extent has a Maglev table */

#define WORD_BASE(w)  ((__u32)((w) >> 32))
#define WORD_FLAGS(w) ((__u32)((w) >> 24) & 0xff)
#define WORD_COUNT(w) ((__u32)(w)&0xffffff)

/* A slot holds a backend, the header of an extent, or eight entries of its
 * Maglev table, which follows the backends: each is the index of a selectable
 * backend, in host byte order. */
#define MAGLEV_PER_SLOT 8

#define SLOT_BACKEND 0
#define SLOT_HEADER  1
#define SLOT_MAGLEV  2

struct backend {
	union {
		__be32 address[4];
		struct {
			__u32 selectable; /* slots base+1 ... base+selectable */
			__u32 total;	  /* draining ones follow, up to base+total */
			__u32 generation;
			__u32 length; /* slots of the extent, header included */
		} header;
		__u16 maglev[MAGLEV_PER_SLOT];
	};
	__be16 port; /* of a header: entries of the Maglev table, in host byte order */
	__u16 kind;
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

/* What is known of an address, whatever the port. Bits are set before the
 * frontends that they announce are written, and taken away after them. */
#define ADDRESS_NODEPORT   (1U << 0) /* this node's, and serves NodePorts (R24) */
#define ADDRESS_NODE	   (1U << 1) /* this node's */
#define ADDRESS_SERVICE	   (1U << 2) /* some frontend has it */
#define ADDRESS_CLUSTER_IP (1U << 3) /* some frontend has it as its ClusterIP (R38) */

struct address {
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct address);
	__type(value, __u32);
	__uint(max_entries, 1);
} fairlead_addresses SEC(".maps");

/* The node's primary address of each family; all zero if it has none. What the
 * node's own sockets send counts as coming from there (R22). The two halves of
 * an IPv6 address are not written at once: for the length of a store, when the
 * primary address changes, a program may see one of each. */
#define PRIMARY_IPV4 0
#define PRIMARY_IPV6 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct address);
	__uint(max_entries, 2);
} fairlead_primary SEC(".maps");

/* The node's devices on the wire, by index: those with programs of ours that
 * face other machines. A flow that leaves by one of them comes back through a
 * program of ours, so its source can be rewritten. */
struct device {
	__be32 source4[4]; /* mapped; all zero: the device has none */
	__be32 source6[4];
	__u32 index; /* repeats the key, see struct frontend */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct device);
	__uint(max_entries, 1024);
} fairlead_devices SEC(".maps");

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
	__u32 set;
	__u32 unchecked; /* its packets show whether the source is in range (R22) */
	__u32 pid;	 /* who dialled, if it is unchecked */
	__u64 netns;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct peer);
} fairlead_peers SEC(".maps");

/* Sockets that dial whom they name, though a Service may have the address: the
 * agent's own, which must reach the API server whatever these maps say. User
 * space marks a socket by its descriptor, before it connects. Freed with it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} fairlead_exempt SEC(".maps");

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

/* Flows on the wire. A flow has two elements, one for each direction: the key
 * is a packet as it arrives at a program, the value what it becomes. Those of
 * a flow that nobody has confirmed stand in fairlead_embryos: a flood of them
 * cannot push out a flow in fairlead_flows. A TCP flow is confirmed by the
 * client's acknowledgement of the backend's sequence number, a UDP flow by a
 * datagram of the client after one of the backend. */
#define AT_INGRESS 0
#define AT_EGRESS  1

struct flow_key {
	__be32 source[4];
	__be32 target[4];
	__be16 source_port;
	__be16 target_port;
	__u8 protocol;
	__u8 at; /* AT_*: the program that this direction passes */
	__u16 pad;
};

#define FLOW_REPLY    (1U << 0) /* from the backend to the client */
#define FLOW_REDIRECT (1U << 1) /* leaves by the wire past the stack, both ways */
#define FLOW_SNAT     (1U << 2) /* the backend sees an address of the node */
#define FLOW_INSIDE   (1U << 3) /* the client is a pod of this node */

/* What the flow has come to; bits are only ever added. */
#define FLOW_ANSWERED	(1U << 0) /* the backend has sent something */
#define FLOW_FIN_CLIENT (1U << 1)
#define FLOW_FIN_SERVER (1U << 2)
#define FLOW_RESET	(1U << 3)

/* How a direction that leaves past the stack did so last. It is believed for a
 * moment: asking for the route is what costs most of such a packet. */
struct path {
	__u64 found; /* nanoseconds of CLOCK_MONOTONIC; 0: not yet */
	__be32 next[4]; /* address of the next hop, as bpf_fib_lookup() gives it */
	__u32 device;
	__u16 mtu;
	__u8 family; /* of the next hop */
	__u8 pad;
};

struct flow {
	__be32 source[4];
	__be32 target[4];
	__be16 source_port;
	__be16 target_port;
	__u32 owner;
	__u32 set;
	__u32 seal; /* flow_seal() of the key and the fields above, and of flags */
	__u64 stamp; /* of the set, when the backend was last found in it; 0: not yet */
	__u64 used; /* nanoseconds of CLOCK_MONOTONIC, to about a second */
	__u32 sequence; /* unconfirmed: of a reply's SYN; else what was acknowledged last */
	__u8 state;
	__u8 flags;
	__u8 at;  /* of the other direction's key */
	__u8 pad;
	struct path path;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct flow_key);
	__type(value, struct flow);
	__uint(max_entries, 1);
} fairlead_flows SEC(".maps");

/* Confirmed flows of UDP. Who does not see the answer can send the datagram
 * that confirms all the same: a flood of such pairs pushes out no connection. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct flow_key);
	__type(value, struct flow);
	__uint(max_entries, 1);
} fairlead_datagrams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct flow_key);
	__type(value, struct flow);
	__uint(max_entries, 1);
} fairlead_embryos SEC(".maps");

/* The ports of a datagram whose first fragment has passed. */
struct fragment_key {
	__be32 source[4];
	__be32 target[4];
	__u32 id;
	__u8 protocol;
	__u8 at;
	__u16 pad;
};

struct fragment {
	__be16 source_port;
	__be16 target_port;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
	__uint(max_entries, 8192);
} fairlead_fragments SEC(".maps");

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
	__be16 source_port;
	char command[16];
	__be32 source[4]; /* of a packet; all zero at a socket */
	__u32 device;	  /* index; 0 at a socket */
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
#define COUNTER_EVENTS_LOST	  0 /* the ring buffer was full */
#define COUNTER_AFFINITY_CREATED  1
#define COUNTER_UDP_CREATED	  2
#define COUNTER_EMBRYOS_CREATED	  3 /* elements, two for each flow */
#define COUNTER_EMBRYOS_DELETED	  4
#define COUNTER_FLOWS_CREATED	  5
#define COUNTER_FLOWS_DELETED	  6
#define COUNTER_PORTS_EXHAUSTED	  7 /* no free port for the backend to see */
#define COUNTER_FRAGMENTS_UNKNOWN 8 /* of a datagram whose first one did not pass */
#define COUNTER_MALFORMED	  9 /* of a Service's address, and could not be read */
#define COUNTER_UNROUTABLE	  10 /* translated, and the node has no way to the target */
#define COUNTER_TOO_BIG		  11 /* answered with the size that fits */
#define COUNTER_NO_FLOW		  12 /* amid a connection that is not known here */
#define COUNTER_RELEASED	  13 /* UDP flows whose backend was gone (R35) */
#define COUNTER_FAILED		  14 /* a helper of the kernel refused; the packet was dropped */
/* The agent's own: elements that it deleted. */
#define COUNTER_EMBRYOS_SWEPT	  15
#define COUNTER_FLOWS_SWEPT	  16
#define COUNTER_DATAGRAMS_SWEPT	  17
/* Of fairlead_datagrams; COUNTER_FLOWS_* are of fairlead_flows. */
#define COUNTER_DATAGRAMS_CREATED 18
#define COUNTER_DATAGRAMS_DELETED 19
#define COUNTER_MAX		  24

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, COUNTER_MAX);
} fairlead_counters SEC(".maps");

/* Settings that the loader fixes before the program is verified. */
volatile const __u64 host_netns = 0;	    /* cookie of the node's namespace */
volatile const __u8 host_only = 0;	    /* --socket-path=host */
volatile const __u8 have_set_retval = 0;    /* else every refusal is EPERM */
volatile const __u8 have_mptcp = 0;	    /* else MPTCP sockets show a backend as peer */
volatile const __u8 have_source_check = 0;  /* skb_egress sees what pods send first */
volatile const __u8 have_service_cidrs = 0; /* fairlead_ranges has some, of owner 0 (R38) */

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&fairlead_counters, &which);

	if (n)
		*n += 1;
}

#endif
