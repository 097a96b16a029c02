package contexts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/server/secrets"
)

// ErrUnusable says that the contexts of a job cannot give it what it needs, now or at the next try. The text names the
// context and holds no value.
var ErrUnusable = errors.New("contexts cannot be used")

// Request is a job that is about to be given out.
type Request struct {
	OrgID      string
	Job        secrets.Job
	Names      []string // of its contexts, in its order
	RoutingKey string   // of its run, "" for none
	Tier       ci.Tier  // of the contributor; "": no statement
	Host       *decide.Host
}

// Resolve gives what the contexts of a job bring together. The gates have let the job pass before; a context that was
// deleted or disabled since is ErrUnusable, as is a binding that cannot be decided.
func (s *Store) Resolve(ctx context.Context, r Request) (merged decide.Merged, err error) {
	if len(r.Names) == 0 {
		return merged, nil
	}
	bound, err := s.bound(ctx, s.db.Read(), r.OrgID, r.Names, "")
	if err != nil {
		return merged, err
	}
	res := resolver{s: s, r: r}
	var entries []decide.Resolved
	for _, b := range bound {
		entry, err := res.one(ctx, b)
		if err != nil {
			return merged, err
		}
		entries = append(entries, entry)
	}
	return decide.Merge(entries), nil
}

// resolver resolves the contexts of one job. The secrets of the organisation are read once, and not at all when no
// context has bindings.
type resolver struct {
	s     *Store
	r     Request
	vault *secrets.Vault
}

func (v *resolver) one(ctx context.Context, b decide.Bound) (entry decide.Resolved, err error) {
	entry.Name = b.Name
	switch {
	case b.Context == nil:
		return entry, fmt.Errorf("%w: context '%s' does not exist", ErrUnusable, b.Name)
	case !b.Context.Enabled:
		return entry, fmt.Errorf("%w: context '%s' is disabled", ErrUnusable, b.Name)
	}
	if entry.Variables, err = v.variables(ctx, b.Context.ID); err != nil {
		return entry, err
	}
	if !decide.Withheld(v.r.Tier) {
		entry.Secrets, err = v.secrets(ctx, b)
	}
	return entry, err
}

func (v *resolver) variables(ctx context.Context, contextID string) (map[string]string, error) {
	stored, err := v.s.Variables(ctx, contextID)
	if err != nil {
		return nil, err
	}
	base := make([]decide.Variable, len(stored))
	for i, one := range stored {
		base[i] = one.Variable
	}
	overrides, err := v.s.Overrides(ctx, contextID)
	if err != nil {
		return nil, err
	}
	return decide.Variables(base, overrides, v.r.RoutingKey), nil
}

func (v *resolver) secrets(ctx context.Context, b decide.Bound) (map[string]string, error) {
	bindings, err := v.s.plainBindings(ctx, b.Context.ID)
	if err != nil || len(bindings) == 0 {
		return nil, err
	}
	if v.vault == nil {
		if v.vault, err = v.s.secrets.Vault(ctx, v.r.Job, v.r.OrgID); err != nil {
			return nil, err
		}
	}
	chosen, err := decide.Resolve(b.Name, bindings, v.vault.Places, nil, v.r.Host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return v.vault.Open(ctx, b.Name, chosen)
}

// Keys lists the keys of the secrets that each of the contexts gives a job that is on no host of a fan-out. A context that
// does not exist gives none. The refusal, for people, says why none can be told, now or at the next try.
func (s *Store) Keys(ctx context.Context, orgID string, names []string) (keys map[string][]string, refusal string, err error) {
	vault, err := s.secrets.Vault(ctx, secrets.Job{}, orgID)
	if errors.Is(err, secrets.ErrNotConfigured) {
		return nil, "secrets subsystem is not configured (KICI_SECRET_KEY missing)", nil
	}
	if err != nil {
		return nil, "", err
	}
	bound, err := s.bound(ctx, s.db.Read(), orgID, names, "")
	if err != nil {
		return nil, "", err
	}
	keys = map[string][]string{}
	for _, b := range bound {
		if b.Context == nil {
			continue
		}
		bindings, err := s.plainBindings(ctx, b.Context.ID)
		if err != nil {
			return nil, "", err
		}
		chosen, err := decide.Resolve(b.Name, bindings, vault.Places, nil, nil)
		if err != nil {
			return nil, err.Error(), nil
		}
		keys[b.Name] = slices.Sorted(maps.Keys(chosen))
	}
	return keys, "", nil
}

func (s *Store) plainBindings(ctx context.Context, contextID string) ([]decide.Binding, error) {
	stored, err := s.Bindings(ctx, contextID)
	plain := make([]decide.Binding, len(stored))
	for i, b := range stored {
		plain[i] = b.Binding
	}
	return plain, err
}

// SecretKeys lists the names of the secrets that the bindings of a context select whatever the host, sorted.
func (s *Store) SecretKeys(ctx context.Context, c Context) ([]string, error) {
	keys := []string{}
	bindings, err := s.Bindings(ctx, c.ID)
	if err != nil || len(bindings) == 0 {
		return keys, err
	}
	vault, err := s.secrets.Vault(ctx, secrets.Job{}, c.OrgID)
	if err != nil {
		return nil, err
	}
	for _, b := range bindings {
		for _, place := range vault.Places {
			selected, err := decide.MatchScope(b.ScopePattern, place.Scope)
			if err != nil {
				return nil, fmt.Errorf("list secrets of context %q: %w", c.Name, err)
			}
			if selected && !slices.Contains(keys, place.Key) {
				keys = append(keys, place.Key)
			}
		}
	}
	slices.Sort(keys)
	return keys, nil
}
