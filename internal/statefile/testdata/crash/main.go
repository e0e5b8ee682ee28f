// SPDX-License-Identifier: Apache-2.0

// Command crash writes a state file. Built with failpoints, it dies at the one
// that its environment names.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fairlead-io/fairlead/internal/statefile"
)

// main writes what it reads from stdin to the file that its argument names.
func main() {
	var c statefile.Content
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		fail(err)
	}
	if err := statefile.Write(os.Args[1], c); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
