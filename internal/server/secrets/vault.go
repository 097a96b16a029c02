package secrets

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"kici/internal/decide/contexts"
)

// Vault is the secrets of an organisation, still sealed, for a job that gets some of them.
type Vault struct {
	Places []contexts.Secret // where they lie, by scope and key, without the server's own

	store     *Store
	job       Job
	org       string
	envelopes []string // of each place
}

// Vault reads where the secrets of an organisation lie. The reserved organisation is refused with ErrReserved and the
// refusal is audited.
func (s *Store) Vault(ctx context.Context, job Job, org string) (*Vault, error) {
	if org == SystemOrg {
		return nil, s.refuse(ctx, job, org)
	}
	if s.keys == nil {
		return nil, ErrNotConfigured
	}
	sealed, err := s.sealed(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read secrets of organisation %s: %w", org, err)
	}
	v := &Vault{store: s, job: job, org: org}
	for _, one := range sealed {
		v.Places = append(v.Places, contexts.Secret{Scope: backendHead + one.scope, Key: one.key})
		v.envelopes = append(v.envelopes, one.envelope)
	}
	return v, nil
}

// sealedSecret is a row with its scope.
type sealedSecret struct {
	scope string
	row
}

func (s *Store) sealed(ctx context.Context, org string) ([]sealedSecret, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectOrganisation, org, sentinel)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []sealedSecret
	for rows.Next() {
		var one sealedSecret
		if err := rows.Scan(&one.scope, &one.key, &one.envelope); err != nil {
			return nil, err
		}
		if !internal(one.scope) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b sealedSecret) int { // the engines order texts differently
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.key, b.key))
	})
	return all, rows.Err()
}

// Open opens the chosen secrets, positions in Places by key, for a context of the job. Of runs one in a hundred has it
// audited.
func (v *Vault) Open(ctx context.Context, context string, chosen map[string]int) (map[string]string, error) {
	values := make(map[string]string, len(chosen))
	for key, i := range chosen {
		place := place(v.org, contexts.Path(v.Places[i].Scope), v.Places[i].Key)
		value, err := v.store.keys.Open(v.envelopes[i], place)
		if err != nil {
			return nil, fmt.Errorf("resolve secrets: %w", err)
		}
		values[key] = string(value)
	}
	if len(values) == 0 || !sampled(v.job) {
		return values, nil
	}
	err := v.store.audit(ctx, AuditEntry{
		Action: "resolve", Context: context, Keys: slices.Sorted(maps.Keys(values)),
		Outcome: outcomeAllowed, RunID: v.job.RunID, JobID: v.job.JobID,
	})
	if err != nil {
		return nil, fmt.Errorf("resolve secrets: %w", err)
	}
	return values, nil
}

const selectOrganisation = `SELECT scope, key, encrypted_value FROM scoped_secrets WHERE org_id = $1 AND key <> $2`
