// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-io/fairlead/test/cluster/judge"
	"github.com/fairlead-io/fairlead/test/cluster/report"
)

// publish prints what the sets found. What a whole set found is kept in the
// checkout, and goes to the page that tells everybody.
func publish(o options) error {
	failed := false
	for _, s := range o.sets {
		specs, err := readReport(o.report(s))
		if err != nil {
			return err
		}
		result := report.Result{Proxy: o.proxy.name, Set: s.name, Specs: specs}
		fmt.Print("\n", result.Summary())
		failed = failed || result.Count(report.Failed) > 0
		if o.focus != "" {
			continue
		}
		if err := result.Save(o.results()); err != nil {
			return err
		}
	}
	if o.focus == "" && len(o.sets) > 0 {
		if err := writePage(o.folders); err != nil {
			return err
		}
	}
	fmt.Printf("\nreports: %s\n", o.reports())
	if failed {
		return errSpecs
	}
	return nil
}

// publishReplay prints how the cluster came through the incident. What the
// replay with the agents as they are found is kept in the checkout.
func publishReplay(o options) error {
	result, err := judge.Load(o.replayReport())
	if err != nil {
		return err
	}
	fmt.Print("\n", result.Summary())
	if o.replay.asIs() {
		if err := result.Save(filepath.Join(o.results(), "replay.json")); err != nil {
			return err
		}
	}
	fmt.Printf("\nreports: %s\n", o.reports())
	if !result.Good() {
		return errSpecs
	}
	return nil
}

func readReport(path string) ([]report.Spec, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	specs, err := report.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return specs, nil
}

func writePage(f folders) error {
	results, err := report.Load(f.results())
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.page(), []byte(report.Page(results)), 0o644); err != nil {
		return err
	}
	fmt.Printf("\nwritten: %s\n", f.page())
	return nil
}
