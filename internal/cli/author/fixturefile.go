package author

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"kici/internal/author/sample"
	"kici/internal/cli/console"
)

// maxEvent bounds a file with an event, in bytes, as ingress bounds deliveries.
const maxEvent = 25 << 20

// ReadDelivery reads a file with an event. It is not known which event when the file holds but a payload.
func ReadDelivery(path string) (d sample.Delivery, known bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return d, false, console.Usage("read event: %w", err)
	}
	if info.Size() > maxEvent {
		return d, false, console.Usage("read event: %s has %d bytes, more than the %d of a delivery", path, info.Size(), maxEvent)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return d, false, console.Usage("read event: %w", err)
	}
	if d, known, err = sample.Parse(raw); err != nil {
		return d, false, console.Usage("read event %s: %w", path, err)
	}
	return d, known, nil
}

// FixtureDir is the folder of fixtures in that of workflows.
const FixtureDir = "fixtures"

var fixtureName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })

// IsBuiltIn tells the names that built-in events have.
func IsBuiltIn(name string) bool {
	return name == "pull_request" || slices.ContainsFunc(sample.Kinds(), func(k sample.Kind) bool { return k.Name == name })
}

// FixturePath is where the fixture of a name lies. It never leads out of its folder, and never hides a built-in event.
func FixturePath(root, kiciDir, name string) (string, error) {
	switch {
	case !fixtureName().MatchString(name):
		return "", console.Usage("a fixture's name has letters, digits, dots, dashes and underscores only, not %q", name)
	case IsBuiltIn(name):
		return "", console.Usage("%q is a built-in event: choose another name", name)
	}
	return filepath.Join(InRoot(root, kiciDir), FixtureDir, name+".json"), nil
}
