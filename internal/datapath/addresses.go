// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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

// The keys of the node's primary addresses: PRIMARY_* of bpf/maps.h.
const (
	primaryIPv4 = 0
	primaryIPv6 = 1
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

// settleAll makes the kernel know of all addresses what the datapath knows. A
// predecessor may have ended between a frontend and its address.
func (d *Datapath) settleAll() error {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	var all []frontendKey
	for a := range d.addresses {
		all = append(all, frontendKey{Address: a})
	}
	return d.writeAddresses(all)
}

// unknown stands for what the kernel has of an address if a write failed, or if
// someone else wrote it: it is none that is ever wanted, so the next write
// writes again.
const unknown = 1 << 31

// writeAddresses makes the kernel know of these addresses what the datapath
// knows. Programs look no further for an address without its bits, so they are
// written before frontends and taken away after them.
func (d *Datapath) writeAddresses(of []frontendKey) error {
	var keys, gone []address
	var values []uint32
	for _, k := range of {
		u := d.addresses[k.Address]
		if u == nil {
			continue
		}
		flags := u.flags()
		if flags == 0 && u.written == 0 {
			delete(d.addresses, k.Address)
			continue
		}
		if flags == u.written {
			continue
		}
		u.written = flags
		if flags == 0 {
			gone = append(gone, k.Address)
			continue
		}
		keys, values = append(keys, k.Address), append(values, flags)
	}
	return errors.Join(d.deleteAddresses(gone), d.putAddresses(keys, values))
}

func (d *Datapath) putAddresses(keys []address, values []uint32) error {
	if len(keys) == 0 {
		return nil
	}
	n, err := d.current.maps[mapAddresses].BatchUpdate(keys, values, nil)
	if err == nil {
		return nil
	}
	n = processed(n, len(keys), err)
	for _, a := range keys[n:] {
		d.addresses[a].written = unknown
	}
	return fmt.Errorf("write address %s: %w", keys[n].addr(),
		mapFull(err, mapAddresses, d.cfg.Sizes.Frontends+maxNodeAddresses, "--max-frontends"))
}

func (d *Datapath) deleteAddresses(gone []address) error {
	var failures []error
	for _, a := range gone {
		if err := ignoreMissing(d.current.maps[mapAddresses].Delete(a)); err != nil {
			d.use(a).written = unknown
			failures = append(failures, fmt.Errorf("delete address %s: %w", a.addr(), err))
			continue
		}
		delete(d.addresses, a)
	}
	return errors.Join(failures...)
}

// SetNodeAddresses says which addresses are the node's, the primary one of each
// family first, and which of them serve NodePorts (R24). Loopback needs no
// entry: programs know it. Safe beside all other methods but Close.
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
	for a := range node {
		d.use(a)
	}
	var changed []frontendKey
	for a, u := range d.addresses {
		// What could not be written before is written now.
		if u.node != node[a] || u.written == unknown {
			u.node = node[a]
			changed = append(changed, frontendKey{Address: a})
		}
	}
	d.primary = primaryOf(own)
	_, err := d.comparePrimary()
	return errors.Join(err, d.writeAddresses(changed))
}

// primaryOf returns the first address of each family by its key in the map;
// all zero if there is none.
func primaryOf(own []netip.Addr) map[uint32]address {
	primary := map[uint32]address{primaryIPv4: {}, primaryIPv6: {}}
	for _, a := range slices.Backward(own) {
		if a.Is4() {
			primary[primaryIPv4] = addressOf(a)
			continue
		}
		primary[primaryIPv6] = addressOf(a)
	}
	return primary
}

// comparePrimary makes the kernel know the primary addresses. Until they are
// told, a predecessor's are in force.
func (d *Datapath) comparePrimary() (repaired int, err error) {
	m := d.current.maps[mapPrimary]
	for family, want := range d.primary {
		var have address
		if err := m.Lookup(family, &have); err != nil {
			return repaired, fmt.Errorf("read the node's primary address: %w", err)
		}
		if have == want {
			continue
		}
		if err := m.Put(family, want); err != nil {
			return repaired, fmt.Errorf("write the node's primary address %s: %w", want.addr(), err)
		}
		repaired++
	}
	return repaired, nil
}

// adoptAddresses learns what the kernel knows of addresses. What it should not
// know of them is taken away by Prune, and of the node by SetNodeAddresses.
func (d *Datapath) adoptAddresses() error {
	return d.readAddresses(func(a address, flags uint32) {
		u := d.use(a)
		u.written = cmp.Or(flags, unknown)
		u.node = flags & (addressNode | addressNodePort)
	})
}

func (d *Datapath) readAddresses(f func(address, uint32)) error {
	if err := readHash(d.current.maps[mapAddresses], f); err != nil {
		return fmt.Errorf("read what is known of addresses: %w", err)
	}
	return nil
}

// compareAddresses repairs what someone else changed.
func (d *Datapath) compareAddresses() (repaired int, err error) {
	d.addressMu.Lock()
	defer d.addressMu.Unlock()
	seen := make(map[address]struct{}, len(d.addresses))
	var changed []frontendKey
	err = d.readAddresses(func(a address, flags uint32) {
		seen[a] = struct{}{}
		u := d.use(a)
		u.written = cmp.Or(flags, unknown)
		if u.flags() != u.written {
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
	repaired, err = d.comparePrimary()
	if failed := d.writeAddresses(changed); failed != nil {
		return repaired, errors.Join(err, failed)
	}
	return repaired + len(changed), err
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
