// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// Within the pin path: g1, g2 … hold a generation of maps each, current is a
// symbolic link to the one in force, links holds the links of the cgroup and of
// devices. Whatever else stands there is not ours.
const (
	currentLink = "current"
	nextLink    = "current-next" // what current is about to be
	linksFolder = "links"
)

func generationName(number int) string { return "g" + strconv.Itoa(number) }

func generationFolder(pinPath string, number int) string {
	return filepath.Join(pinPath, generationName(number))
}

// generationNumber reads a generation's name; ok is false if it is none.
func generationNumber(name string) (number int, ok bool) {
	digits, ok := strings.CutPrefix(name, "g")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// makeCurrent lets the current link name the maps that are now complete. It
// comes before the programs change over: whoever restarts in between finds
// maps that are whole, and gives the programs to them.
func (d *Datapath) makeCurrent() error {
	if d.current.adopted {
		return nil
	}
	if err := d.carryCounters(); err != nil {
		return err
	}
	failpoint.Hit("attach: counters are carried over")
	path, next := filepath.Join(d.cfg.PinPath, currentLink), filepath.Join(d.cfg.PinPath, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a left-over link: %w", err)
	}
	if err := os.Symlink(generationName(d.current.number), next); err != nil {
		return fmt.Errorf("name the current maps: %w", err)
	}
	failpoint.Hit("attach: new maps are named aside")
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("name the current maps: %w", err)
	}
	failpoint.Hit("attach: new maps are current")
	d.current.adopted = true
	return nil
}

// dropReplaced unpins every generation but the current one.
func (d *Datapath) dropReplaced() error {
	for _, g := range []**generation{&d.replaced, &d.former} {
		if *g != nil {
			(*g).close()
			*g = nil
		}
	}
	if err := removeGenerations(d.cfg.PinPath, generationName(d.current.number)); err != nil {
		return err
	}
	failpoint.Hit("attach: old maps are removed")
	return nil
}

func removeGenerations(pinPath, but string) error {
	entries, err := os.ReadDir(pinPath)
	if err != nil {
		return fmt.Errorf("list the pin path: %w", err)
	}
	for _, e := range entries {
		if _, ours := generationNumber(e.Name()); !ours || !e.IsDir() || e.Name() == but {
			continue
		}
		if err := os.RemoveAll(filepath.Join(pinPath, e.Name())); err != nil {
			return fmt.Errorf("unpin the maps in %s: %w", e.Name(), err)
		}
	}
	return nil
}

func removeLinks(pinPath string) error {
	if err := os.RemoveAll(filepath.Join(pinPath, linksFolder)); err != nil {
		return fmt.Errorf("remove the pinned links: %w", err)
	}
	return nil
}

// Cleanup detaches the programs, those on devices of this network namespace
// included, and removes everything that is pinned, links first. It fails with
// ErrHeld while an agent is the writer. What is not Fairlead's stays, and with it
// the folder; the error names it.
func Cleanup(pinPath string) error {
	if _, err := os.Stat(pinPath); errors.Is(err, os.ErrNotExist) {
		return removeFilters()
	}
	lock, err := lockPinPath(pinPath)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := errors.Join(removeWire(pinPath), removeLinks(pinPath)); err != nil {
		return err
	}
	for _, name := range []string{currentLink, nextLink} {
		if err := os.RemoveAll(filepath.Join(pinPath, name)); err != nil {
			return fmt.Errorf("remove what names the current maps: %w", err)
		}
	}
	if err := removeGenerations(pinPath, ""); err != nil {
		return err
	}
	return removeFolder(pinPath)
}

// removeFolder removes the pin path itself, if nothing is left in it.
func removeFolder(pinPath string) error {
	entries, err := os.ReadDir(pinPath)
	if err != nil {
		return fmt.Errorf("list the pin path: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("what Fairlead had pinned at %s is removed, but not the folder: %s in it (%d in all) is not Fairlead's",
			pinPath, entries[0].Name(), len(entries))
	}
	if err := os.Remove(pinPath); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove the pin path: %w", err)
	}
	return nil // a mount point is busy, and not ours to remove
}
