// SPDX-License-Identifier: Apache-2.0

package datapath

// The objects are committed, so that a build needs no clang. `make generate`
// sets BPF_INCLUDES to the include path of the kernel headers.
//
//go:generate go tool bpf2go -go-package datapath -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Werror $BPF_INCLUDES" sock bpf/sock.c
//go:generate go tool bpf2go -no-global-types -go-package datapath -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Werror $BPF_INCLUDES" wire bpf/wire.c
//go:generate go tool bpf2go -no-global-types -go-package datapath -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Werror $BPF_INCLUDES" release bpf/release.c
//go:generate go tool bpf2go -go-package datapath -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Werror $BPF_INCLUDES" source bpf/source.c
