// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

// dialTime bounds how long a connection is waited for, and then how long its
// answer.
const dialTime = 2 * time.Second

// request is what a process that dials is told; it answers with a result for
// each target, in their order.
type request struct {
	From    string   `json:"from"`
	Targets []Target `json:"targets"`
	// PinPath, where there is one, is that of the maps in which sockets are marked
	// as the agent's own.
	PinPath string `json:"pinPath"`
}

// Serve dials what one request asks for, from where the calling process lives,
// and writes the results. It is what a process does that Run starts.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read what to dial: %w", err)
	}
	results, err := r.run(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(results); err != nil {
		return fmt.Errorf("write what came of it: %w", err)
	}
	return nil
}

func (r request) run(ctx context.Context) ([]Result, error) {
	var exempt func(fd uintptr) error
	if r.PinPath != "" {
		marks, err := datapath.OpenExemptions(r.PinPath)
		if err != nil {
			return nil, err
		}
		defer marks.Close()
		exempt = marks.Exempt
	}
	results := make([]Result, len(r.Targets))
	var all sync.WaitGroup
	for i, t := range r.Targets {
		all.Go(func() { results[i] = try(ctx, t, r.From, exempt) })
	}
	all.Wait()
	return results, nil
}

// try dials one target from the calling process's place.
func try(ctx context.Context, t Target, from string, exempt func(fd uintptr) error) Result {
	begin := time.Now()
	r := Result{Purpose: t.Purpose, Service: t.Service, From: from, Time: begin.UTC(), Because: []string{}}
	if t.Purpose == Gateway {
		t.Address = netip.AddrPortFrom(gateway(), t.Address.Port())
	}
	r.Target = t.String()
	if !t.Address.Addr().IsValid() {
		r.Outcome, r.Error = Failed, "there is no gateway with an address of its own"
		return r
	}
	answer, err := dialAndAsk(ctx, t, exempt)
	r.Millis = time.Since(begin).Milliseconds()
	r.Answer = answer
	r.fail(err)
	if r.Step == StepConnect && r.Errno != "" {
		r.Route = askRoute(t.Address.Addr())
	}
	reached := r.Outcome == Refused && r.Step == StepHandshake && r.ICMP == ""
	if (t.Purpose == Gateway || t.Purpose == Peer) && reached {
		r.Answer, r.Outcome = "refused, so it is reached", OK
		r.Step, r.Errno, r.Error = "", "", ""
	}
	return r
}

func dialAndAsk(ctx context.Context, t Target, exempt func(fd uintptr) error) (string, error) {
	deadline := time.Now().Add(dialTime)
	conn, err := dialer{deadline, exempt}.dial(t.Address, t.Protocol)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline = time.Now().Add(dialTime)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", fmt.Errorf("bound a connection in time: %w", err)
	}
	return ask(ctx, conn, t)
}

// fail notes what kind of error it is.
func (r *Result) fail(err error) {
	if err == nil {
		r.Outcome = OK
		return
	}
	r.Error, r.Step = cut(err.Error()), StepAnswer
	var refused *refusal
	var send *sendError
	switch {
	case errors.As(err, &refused):
		r.Step, r.ICMP = refused.step, refused.icmp
		if refused.sender.IsValid() {
			r.Sender = refused.sender.String()
		}
	case errors.As(err, &send):
		r.Step = StepSend
	}
	var errno syscall.Errno
	var timeout net.Error
	var bad badAnswer
	switch {
	case refused != nil && refused.errno == 0:
		r.Outcome = Timeout
	case refused != nil:
		r.Errno, r.Outcome = unix.ErrnoName(refused.errno), outcomeOf(refused.errno)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		r.Outcome = Timeout
	case errors.As(err, &errno):
		r.Errno, r.Outcome = unix.ErrnoName(errno), outcomeOf(errno)
	case errors.As(err, &bad):
		r.Outcome = BadAnswer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.Outcome = BadAnswer
	default:
		r.Outcome = Failed
	}
}

// outcomeOf sorts errors of the kernel's. A blackhole in the routing table is
// EINVAL.
func outcomeOf(errno syscall.Errno) Outcome {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return NotPermitted
	case unix.ECONNREFUSED:
		return Refused
	case unix.EHOSTUNREACH, unix.EHOSTDOWN:
		return HostUnreachable
	case unix.ENETUNREACH, unix.ENETDOWN, unix.EINVAL:
		return NetUnreachable
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED:
		return Reset
	case unix.ETIMEDOUT:
		return Timeout
	}
	return Failed
}

// askRoute says what the routing table says of an address: "ok", or the name
// of an error.
func askRoute(to netip.Addr) string {
	_, err := netlink.RouteGet(to.Unmap().AsSlice())
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return ""
	}
	return "ok"
}

// gateway is where the default route leads. An address that is only a name for
// the other end of a cable, as some CNIs give to all pods, answers nobody.
func gateway() netip.Addr {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return netip.Addr{}
	}
	for _, route := range routes {
		addr, ok := netip.AddrFromSlice(route.Gw)
		byDefault := route.Dst == nil || route.Dst.IP.IsUnspecified()
		if ok && byDefault && !addr.Unmap().IsLinkLocalUnicast() {
			return addr.Unmap()
		}
	}
	return netip.Addr{}
}
