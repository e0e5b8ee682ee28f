// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// What programs know of an address, whatever the port: ADDRESS_* of
// bpf/maps.h.
const (
	addressNodePort  = 1 << 0
	addressNode      = 1 << 1
	addressService   = 1 << 2
	addressClusterIP = 1 << 3
)

// addressUse is what the datapath knows of an address.
type addressUse struct {
	node       uint32 // addressNodePort and addressNode
	frontends  int    // installed ones that have it
	clusterIPs int    // those among them that have it as their ClusterIP
	announced  uint32 // bits for frontends that are being written
	written    uint32 // what the kernel has; 0 = no element
}

func (u *addressUse) flags() uint32 {
	flags := u.node | u.announced
	if u.frontends > 0 {
		flags |= addressService
	}
	if u.clusterIPs > 0 {
		flags |= addressClusterIP
	}
	return flags
}

// use returns what is known of an address; it may be nothing yet.
func (d *Datapath) use(a address) *addressUse {
	u := d.addresses[a]
	if u == nil {
		u = &addressUse{}
		d.addresses[a] = u
	}
	return u
}

// isWildcard says that the key is of a NodePort, which has no address of its own.
func (k frontendKey) isWildcard() bool { return k.Address.addr().IsUnspecified() }

// announce lets the kernel know of the addresses of frontends that are about to
// be written. What becomes of them is for settle to say.
func (d *Datapath) announce(w writes) error {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	for i, k := range w.keys {
		if k.isWildcard() {
			continue
		}
		u := d.use(k.Address)
		u.announced |= addressService
		if d.shadows[w.want[i].set].role == model.RoleClusterIP {
			u.announced |= addressClusterIP
		}
	}
	return d.writeAddresses(w.keys)
}

// settle takes back what was announced and is not so, or no longer is.
func (d *Datapath) settle(keys []frontendKey) error {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	for _, k := range keys {
		if u := d.addresses[k.Address]; u != nil {
			u.announced = 0
		}
	}
	return d.writeAddresses(keys)
}

// install notes what the frontends map holds under a key.
func (d *Datapath) install(k frontendKey, want installed) {
	if have, ok := d.installed[k]; ok {
		d.countFrontend(k, have.set, -1)
	}
	d.installed[k] = want
	d.countFrontend(k, want.set, 1)
}

// uninstall notes that the frontends map has nothing under a key.
func (d *Datapath) uninstall(k frontendKey) {
	if have, ok := d.installed[k]; ok {
		d.countFrontend(k, have.set, -1)
	}
	delete(d.installed, k)
}

// countFrontend keeps count of the frontends of an address. The kernel learns
// of it with settle.
func (d *Datapath) countFrontend(k frontendKey, set SetID, by int) {
	if k.isWildcard() {
		return
	}
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	u := d.use(k.Address)
	u.frontends += by
	if d.shadows[set].role == model.RoleClusterIP {
		u.clusterIPs += by
	}
}

// writeAddresses makes the kernel know of these addresses what the datapath
// knows. Programs look no further for an address without its bits, so they are
// written before frontends and taken away after them.
func (d *Datapath) writeAddresses(of []frontendKey) error {
	m := d.current.maps[mapAddresses]
	var keys, gone []address
	var values []uint32
	for _, k := range of {
		a := k.Address
		u := d.addresses[a]
		if u == nil || u.flags() == u.written {
			continue
		}
		if flags := u.flags(); flags != 0 {
			keys, values = append(keys, a), append(values, flags)
			u.written = flags
			continue
		}
		gone = append(gone, a)
		delete(d.addresses, a)
	}
	if len(keys) > 0 {
		if n, err := m.BatchUpdate(keys, values, nil); err != nil {
			d.unwritten(keys)
			return fmt.Errorf("write address %s: %w", keys[processed(n, len(keys), err)].addr(),
				mapFull(err, mapAddresses, d.cfg.Sizes.Frontends+maxNodeAddresses, "--max-frontends"))
		}
	}
	for _, a := range gone {
		if err := ignoreMissing(m.Delete(a)); err != nil {
			return fmt.Errorf("delete address %s: %w", a.addr(), err)
		}
	}
	return nil
}

// unwritten notes that nobody knows what the kernel has of these addresses, so
// that the next write writes them again.
func (d *Datapath) unwritten(addresses []address) {
	const unknown = 1 << 31
	for _, a := range addresses {
		d.use(a).written = unknown
	}
}

// SetNodeAddresses says which addresses are the node's, and which of them serve
// NodePorts (R24). Loopback needs no entry: programs know it.
// Safe beside all other methods.
func (d *Datapath) SetNodeAddresses(own, serving []netip.Addr) error {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	node := map[address]uint32{}
	for _, a := range own {
		node[addressOf(a)] |= addressNode
	}
	for _, a := range serving {
		node[addressOf(a)] |= addressNode | addressNodePort
	}
	var changed []frontendKey
	for a, u := range d.addresses {
		if u.node != node[a] {
			u.node = node[a]
			changed = append(changed, frontendKey{Address: a})
		}
	}
	for a, flags := range node {
		if u := d.use(a); u.node != flags {
			u.node = flags
			changed = append(changed, frontendKey{Address: a})
		}
	}
	return d.writeAddresses(changed)
}

// adoptAddresses learns what the kernel knows of addresses. What it should not
// know is taken away by the next comparison.
func (d *Datapath) adoptAddresses() error {
	return d.readAddresses(func(a address, flags uint32) {
		u := d.use(a)
		u.written = flags
		u.node = flags & (addressNode | addressNodePort)
	})
}

func (d *Datapath) readAddresses(f func(address, uint32)) error {
	var a address
	var flags uint32
	entries := d.current.maps[mapAddresses].Iterate()
	for entries.Next(&a, &flags) {
		f(a, flags)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read what is known of addresses: %w", err)
	}
	return nil
}

// compareAddresses repairs what someone else changed.
func (d *Datapath) compareAddresses() (repaired int, err error) {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	seen := map[address]struct{}{}
	var changed []frontendKey
	err = d.readAddresses(func(a address, flags uint32) {
		seen[a] = struct{}{}
		if u := d.use(a); u.flags() != flags {
			u.written = flags
			changed = append(changed, frontendKey{Address: a})
		}
	})
	if err != nil {
		return 0, err
	}
	for a, u := range d.addresses {
		if _, ok := seen[a]; !ok && u.flags() != 0 {
			u.written = 0
			changed = append(changed, frontendKey{Address: a})
		}
	}
	return len(changed), d.writeAddresses(changed)
}

// NetNSCookie returns the cookie of the calling thread's network namespace,
// as bpf_get_netns_cookie gives it to programs.
func NetNSCookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket to ask for the namespace's cookie: %w", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("ask for the network namespace's cookie (Linux 5.14): %w", err)
	}
	return cookie, nil
}
