// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// A log is kept in lines, of which the newest tell most.
const (
	maxLines = 200_000
	maxLine  = 4 << 10
)

func readLog(c *Case, _ *Sample, r *evidence.Record) error {
	log := &Log{Node: r.Node, Pod: r.Pod, Container: r.Container, Record: r}
	number := 0
	all := strings.Count(string(r.Content), "\n")
	for line := range strings.Lines(string(r.Content)) {
		number++
		if all-number >= maxLines {
			continue
		}
		text := strings.TrimRight(line, "\r\n")
		l := Line{Number: number, Time: timeOf(text, r.Time), Text: cut(text, maxLine)}
		if l.Time.After(c.Spoken) {
			c.Spoken = l.Time
		}
		log.Lines = append(log.Lines, l)
	}
	c.Logs = append(c.Logs, log)
	if all > maxLines {
		return fmt.Errorf("%w: of its %d lines the last %d", errPartial, all, maxLines)
	}
	return nil
}

// cut shortens a text between two letters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// The forms in which logs say the time.
var (
	stampTime  = regexp.MustCompile(`^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s]*)\s`)
	klogTime   = regexp.MustCompile(`^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d+) `)
	logfmtTime = regexp.MustCompile(`(?:^|\s)(?:time|ts)="?(\d{4}-\d\d-\d\dT[^"\s]+)`)
)

// timeOf finds when a line was logged, if it says so. klog leaves out the year:
// it is the last one in which the line is not from after the log was read.
func timeOf(line string, read time.Time) time.Time {
	if found := stampTime.FindStringSubmatch(line); found != nil {
		return stamp(found[1])
	}
	if found := klogTime.FindStringSubmatch(line); found != nil {
		return klogStamp(found[1], read)
	}
	if strings.HasPrefix(line, "{") {
		return jsonStamp(line)
	}
	if found := logfmtTime.FindStringSubmatch(line); found != nil {
		return stamp(found[1])
	}
	return time.Time{}
}

func stamp(text string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

func klogStamp(text string, read time.Time) time.Time {
	if read.IsZero() {
		return time.Time{}
	}
	at, err := time.Parse("2006 0102 15:04:05", strconv.Itoa(read.UTC().Year())+" "+text)
	if err != nil {
		return time.Time{}
	}
	const zones = 24 * time.Hour // klog's times are those of its machine
	if at.After(read.Add(zones)) {
		return at.AddDate(-1, 0, 0)
	}
	return at
}

func jsonStamp(line string) time.Time {
	var fields struct {
		TS        any    `json:"ts"`
		Time      any    `json:"time"`
		Timestamp string `json:"timestamp"`
	}
	if json.Unmarshal([]byte(line), &fields) != nil {
		return time.Time{}
	}
	for _, value := range []any{fields.TS, fields.Time, fields.Timestamp} {
		switch v := value.(type) {
		case string:
			if at := stamp(v); !at.IsZero() {
				return at
			}
		case float64:
			return unix(v)
		}
	}
	return time.Time{}
}

// unix reads seconds, or milliseconds, since 1970.
func unix(value float64) time.Time {
	const year5000 = 95_617_584_000
	if value > year5000 {
		value /= 1000
	}
	if value <= 0 || value > year5000 {
		return time.Time{}
	}
	seconds, fraction := math.Modf(value)
	return time.Unix(int64(seconds), int64(fraction*1e9)).UTC()
}
