package trigger

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

func matchingPage(t *testing.T) string {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "matching.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The page that explains matching to authors says what happens.
func TestExamplesOfThePageHold(t *testing.T) {
	blocks := regexp.MustCompile("(?s)### ([^\n]+)\n.*?```json example\n(.*?)```").FindAllStringSubmatch(matchingPage(t), -1)
	if len(blocks) != 10 {
		t.Errorf("%d examples", len(blocks))
	}
	for _, block := range blocks {
		t.Run(block[1], func(t *testing.T) {
			var example struct {
				Triggers []lockfile.Trigger
				Event    ci.Event
				Matched  bool
				Says     string
			}
			vectors.Decode(t, json.RawMessage(block[2]), &example)
			d, err := Match(workflow(example.Triggers...), example.Event, Options{})
			if err != nil || d.Matched != example.Matched {
				t.Fatalf("%v, %v", d.Matched, err)
			}
			if lines := Explain(d); !slices.Contains(lines, example.Says) {
				t.Errorf("it says\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}

func TestTableOfThePageHolds(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([^ ]+)` \\| ([^|]*) \\| ([^|]*) \\|$").FindAllStringSubmatch(matchingPage(t), -1)
	if len(rows) < 10 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		pattern := strings.ReplaceAll(row[1], `\|`, "|") // as Markdown wants it in tables
		for column, want := range map[string]bool{row[2]: true, row[3]: false} {
			names, _, _ := strings.Cut(column, ":")
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1) {
				if got, err := glob.Match(pattern, name[1]); err != nil || got != want {
					t.Errorf("%q on %q: %v, %v", pattern, name[1], got, err)
				}
			}
		}
	}
}
