package contexts

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"kici/internal/core/glob"
)

// Path is a scope without its backend, the part up to the first colon: pg:aws/prod → aws/prod.
func Path(scope string) string {
	if _, path, ok := strings.Cut(scope, ":"); ok {
		return path
	}
	return scope
}

// backendOf is the backend that a scope or a pattern names, ok=false when it names none.
func backendOf(scope string) (backend string, ok bool) {
	backend, _, ok = strings.Cut(scope, ":")
	return backend, ok
}

// depth is the number of segments of a scope's path.
func depth(scope string) int { return strings.Count(Path(scope), "/") + 1 }

// MatchScope tells whether a pattern selects a scope, as in aws/** or vault:aws/prod. Of a pattern with a backend the
// scope must lie in that one; without, it may lie in any. The error is a pattern that needs too many steps on this scope,
// or one that Binding.Check refuses.
func MatchScope(pattern, scope string) (bool, error) {
	if pattern == scope {
		return true, nil
	}
	wanted, patternNames := backendOf(pattern)
	backend, scopeNames := backendOf(scope)
	switch {
	case patternNames && scopeNames && wanted != backend:
		return false, nil
	case patternNames && scopeNames:
		return matchPath(Path(pattern), Path(scope))
	case scopeNames:
		return matchPath(pattern, Path(scope))
	}
	return glob.Match(pattern, scope)
}

func matchPath(pattern, path string) (bool, error) {
	if pattern == "" { // the pattern pg: selects nothing below pg
		return false, nil
	}
	return glob.Match(pattern, path)
}

var reservedSegment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^__.*__$`) })

// Reserved tells whether a scope, with or without a backend, belongs to the server: it has a segment of the form
// __name__, or begins like one. No job ever gets what is in it.
func Reserved(scope string) bool {
	path := Path(scope)
	return strings.HasPrefix(path, "__") || slices.ContainsFunc(strings.Split(path, "/"), reservedSegment().MatchString)
}

// Host is what is known of the host that a child of a host fan-out runs on.
type Host struct {
	AgentID string
	Name    string
	Labels  []string
}

var (
	placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{(?:agentId|host|label:[^}]+)\}`) })
	safeValue   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+$`) })
)

// Substitute puts what is known of the host into a scope pattern: ${agentId}, ${host}, and ${label:NAME}, the value of
// the first label NAME:value in byte order. Other placeholders stay as text. It is not ok when a value is missing, or
// holds what could lead out of its segment or match more than itself: the host must not choose its secrets.
func Substitute(pattern string, host Host) (substituted string, ok bool) {
	ok = true
	substituted = placeholder().ReplaceAllStringFunc(pattern, func(found string) string {
		value := host.value(found[len("${") : len(found)-len("}")])
		ok = ok && safeValue().MatchString(value)
		return value
	})
	if !ok {
		return "", false
	}
	return substituted, true
}

func (h Host) value(name string) string {
	switch name {
	case "agentId":
		return h.AgentID
	case "host":
		return h.Name
	}
	prefix := strings.TrimPrefix(name, "label:") + ":"
	first, found := "", false
	for _, l := range h.Labels {
		if strings.HasPrefix(l, prefix) && (!found || l < first) {
			first, found = l, true
		}
	}
	return strings.TrimPrefix(first, prefix)
}
