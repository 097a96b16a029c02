package label

import (
	"fmt"
	"slices"
	"strings"
)

// Reserved is the prefix of the labels that the system gives. Jobs may select on them; only agents may report the few
// that SelfReportable allows, and nobody may set others.
const Reserved = "kici:"

// The families of labels that the system gives.
const (
	osPrefix     = Reserved + "os:"
	archPrefix   = Reserved + "arch:"
	hostPrefix   = Reserved + "host:"
	agentPrefix  = Reserved + "agent:"
	scalerPrefix = Reserved + "scaler:"
	rolePrefix   = Reserved + "role:"
)

// Auto lists the labels that an agent has by itself: operating system, architecture, host name, roles. platform and arch
// are Node's names (linux, darwin, win32; x64, arm64); no host name gives no host label; nil roles mean all.
func Auto(platform, arch, hostname string, roles *[]string) []string {
	labels := Machine(platform, arch)
	if hostname != "" {
		labels = append(labels, hostPrefix+hostname)
	}
	return append(labels, Roles(roles)...)
}

// Machine lists the labels of an operating system and architecture, some of which have two names.
func Machine(platform, arch string) []string {
	systems := map[string][]string{"darwin": {"macos", "darwin"}, "win32": {"windows", "win32"}}[platform]
	if systems == nil {
		systems = []string{platform}
	}
	architectures := []string{arch}
	if arch == "x64" {
		architectures = append(architectures, "amd64")
	}
	var labels []string
	for _, s := range systems {
		labels = append(labels, osPrefix+s)
	}
	for _, a := range architectures {
		labels = append(labels, archPrefix+a)
	}
	return labels
}

// Kind is the labels by which a job asks for an operating system and architecture, one for each.
func Kind(platform, arch string) []string {
	return []string{Machine(platform, arch)[0], archPrefix + arch}
}

// Roles lists the labels of what an agent does besides ordinary jobs. nil and a list with "all" mean every role, an empty
// list none.
func Roles(roles *[]string) []string {
	list := []string{"builder", "init-runner"}
	if roles != nil && !slices.Contains(*roles, "all") {
		list = *roles
	}
	labels := make([]string, len(list))
	for i, r := range list {
		labels[i] = rolePrefix + r
	}
	return labels
}

// Spawned lists the labels of an agent that a scaler starts: those of its label set, then where it comes from, then its
// roles.
func Spawned(set []string, backend, scaler string, roles *[]string) []string {
	return slices.Concat(set, []string{agentPrefix + backend, scalerPrefix + scaler}, Roles(roles))
}

// ReservedError says that somebody tried to set labels that only the system gives.
type ReservedError struct {
	Source string // the place, as in `scaler labels`
	Labels []string
}

func (e *ReservedError) Error() string {
	return fmt.Sprintf("Labels with 'kici:' prefix are reserved and cannot be used in %s: %s",
		e.Source, strings.Join(e.Labels, ", "))
}

// CheckReserved refuses labels with the reserved prefix, in any case, where people set labels. The error is a
// *ReservedError.
func CheckReserved(labels []string, source string) error {
	if _, reserved := Separate(labels); len(reserved) > 0 {
		return &ReservedError{Source: source, Labels: reserved}
	}
	return nil
}

// Separate splits labels into those that people set and those with the reserved prefix, in any case.
func Separate(labels []string) (user, auto []string) {
	for _, l := range labels {
		if len(l) >= len(Reserved) && strings.EqualFold(l[:len(Reserved)], Reserved) {
			auto = append(auto, l)
		} else {
			user = append(user, l)
		}
	}
	return user, auto
}

// SelfReportable tells whether an agent may report the reserved label itself. Every other must come from its token.
func SelfReportable(l string) bool {
	return strings.HasPrefix(l, osPrefix) || strings.HasPrefix(l, archPrefix) || strings.HasPrefix(l, hostPrefix)
}

// HostName is the host that a host label names.
func HostName(l string) (host string, ok bool) { return strings.CutPrefix(l, hostPrefix) }

// Host is the host that the first host label of the set names, or "".
func Host(labels []string) string {
	for _, l := range labels {
		if host, ok := HostName(l); ok {
			return host
		}
	}
	return ""
}

// Merge joins lists without repetition, in the order of first occurrence.
func Merge(lists ...[]string) []string {
	var out []string
	seen := map[string]bool{}
	for _, l := range slices.Concat(lists...) {
		if !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}
