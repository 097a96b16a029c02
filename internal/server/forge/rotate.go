package forge

import (
	"context"
	"fmt"

	"kici/internal/server/secrets"
)

// KeyVersion is the highest version of a key in the table of sources, 0 when it is empty.
func (s *Sources) KeyVersion(ctx context.Context) (int64, error) {
	version, err := sealedSources.Version(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("read key versions of sources: %w", err)
	}
	return version, nil
}

// Rotate seals what verifies deliveries, where it is of an earlier version, with the current key. Of a source that cannot
// be read the rest still works: it is skipped, until somebody gives it a new secret.
func (s *Sources) Rotate(ctx context.Context, version int64) (secrets.Resealed, error) {
	done, err := sealedSources.Rotate(ctx, s.db, s.seal, version)
	if err != nil {
		return done, fmt.Errorf("rotate verification of sources: %w", err)
	}
	return done, nil
}

var sealedSources = secrets.Sealed{Keys: 1, Latest: `SELECT max(key_version) FROM sources`,
	Page:   `SELECT id, verification_config FROM sources WHERE key_version < $1 AND id > $3 ORDER BY id LIMIT $2`,
	Update: `UPDATE sources SET verification_config = $1, key_version = $2 WHERE verification_config = $3 AND id = $4`,
	Place:  func(key []string) string { return sealAAD(key[0]) }}
