package contexts

import (
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
)

// Binding lets a context see the secrets of the scopes that a pattern selects, on the hosts that another one names.
type Binding struct {
	ScopePattern string // may hold ${agentId}, ${host}, ${label:NAME}; see Substitute
	HostPattern  string // see label.HostPattern; "" and ** are all hosts
}

// Secret is where a secret lies. Its value is nobody's business here.
type Secret struct {
	Scope string // with its backend: pg:aws/prod
	Key   string
}

// Unreachable is a backend that could not be asked.
type Unreachable struct {
	Backend string
	Err     error
}

// BackendError says that a context may depend on a backend that could not be asked. A job that ran without those
// secrets might do worse than fail.
type BackendError struct {
	Unreachable
	Context string
	Pattern string // of the binding
}

func (e *BackendError) Error() string {
	return fmt.Sprintf("Secret backend '%s' is unreachable (%v) and job environment '%s' has binding '%s' that may depend on it."+
		" No other backend provides matching secrets.", e.Backend, e.Err, e.Context, e.Pattern)
}

// Unwrap gives the error of the backend.
func (e *BackendError) Unwrap() error { return e.Err }

// Resolve selects the secrets that a job of the context gets: by key, the position in secrets of the one that wins. The
// binding that names hosts more specifically wins, then the secret with more segments in its scope, then the first
// binding, then the first secret, so both lists must come in a stable order. host is nil for a job that is no child of a
// host fan-out; it gets what is bound to all hosts alike. failed are the backends that secrets lacks.
//
// The error is a *BackendError, or a pattern that cannot be decided; it names the binding.
func Resolve(context string, bindings []Binding, secrets []Secret, failed []Unreachable, host *Host) (map[string]int, error) {
	selection := selection{secrets: secrets, winners: map[string]candidate{}}
	for _, b := range bindings {
		pattern, specificity, applies, err := b.on(host)
		if err != nil {
			return nil, fmt.Errorf("resolve secrets of context %q: host pattern %q: %w", context, b.HostPattern, err)
		}
		if !applies {
			continue
		}
		found, err := selection.add(pattern, specificity)
		if err != nil {
			return nil, fmt.Errorf("resolve secrets of context %q: scope pattern %q: %w", context, b.ScopePattern, err)
		}
		if lost := neededBy(pattern, failed); lost != nil && !found {
			return nil, &BackendError{*lost, context, b.ScopePattern}
		}
	}
	winners := make(map[string]int, len(selection.winners))
	for key, c := range selection.winners {
		winners[key] = c.secret
	}
	return winners, nil
}

// Withheld tells whether runs of a contributor get no secrets of contexts at all, whatever the gates say and whoever
// approves: nobody vouches for what a stranger's run does with them.
func Withheld(tier ci.Tier) bool { return tier != "" && !tier.AtLeast(ci.TierKnown) }

// on gives the scope pattern of a binding for a host, and how specifically the binding names it.
func (b Binding) on(host *Host) (pattern string, specificity int, applies bool, err error) {
	hosts, err := label.ParseHostPattern(b.HostPattern)
	if err != nil {
		return "", 0, false, err
	}
	specificity = hosts.Specificity()
	if host == nil {
		return b.ScopePattern, specificity, specificity == 0 && !strings.Contains(b.ScopePattern, "${"), nil
	}
	if applies, err = hosts.Matches(host.AgentID, host.Name, host.Labels); err != nil || !applies {
		return "", 0, false, err
	}
	pattern, applies = Substitute(b.ScopePattern, *host)
	return pattern, specificity, applies, nil
}

// neededBy finds the first unreachable backend that may hold what a pattern selects, nil when there is none.
func neededBy(pattern string, failed []Unreachable) *Unreachable {
	backend, named := backendOf(pattern)
	i := slices.IndexFunc(failed, func(u Unreachable) bool { return !named || u.Backend == backend })
	if i < 0 {
		return nil
	}
	return &failed[i]
}

// selection collects the best secret of each key.
type selection struct {
	secrets []Secret
	winners map[string]candidate
}

type candidate struct{ secret, specificity, depth int }

func (c candidate) beats(other candidate) bool {
	if c.specificity != other.specificity {
		return c.specificity > other.specificity
	}
	return c.depth > other.depth
}

// add offers the secrets that a pattern selects, and tells whether there are any. The server's own scopes are never
// among them.
func (s *selection) add(pattern string, specificity int) (found bool, err error) {
	for i, secret := range s.secrets {
		matches, err := MatchScope(pattern, secret.Scope)
		if err != nil {
			return found, err
		}
		if !matches || Reserved(secret.Scope) {
			continue
		}
		found = true
		c := candidate{i, specificity, depth(secret.Scope)}
		if best, taken := s.winners[secret.Key]; !taken || c.beats(best) {
			s.winners[secret.Key] = c
		}
	}
	return found, nil
}
