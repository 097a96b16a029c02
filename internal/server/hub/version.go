package hub

import (
	"slices"
	"strconv"
	"strings"

	"kici/internal/core/wire"
)

// oldSchema is the last release of agents that drop a dispatch whole when it names the status unroutable, and that do not
// hear the end of a wait for their concurrency group.
var oldSchema = [3]int{0, 1, 24}

// newer tells whether an agent is newer than oldSchema. Our own agents are, whatever their number.
func newer(version string, features []string) bool {
	if slices.Contains(features, wire.FeatureFrameAck) {
		return true
	}
	v, ok := parseVersion(version)
	if !ok {
		return false
	}
	for i := range v {
		if v[i] != oldSchema[i] {
			return v[i] > oldSchema[i]
		}
	}
	return false
}

// parseVersion reads the three numbers of a release; a pre-release counts as its release.
func parseVersion(s string) (v [3]int, ok bool) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}
