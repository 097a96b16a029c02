package server

import (
	"context"

	"kici/internal/core/adminwire"
	"kici/internal/server/secrets"
)

// keyVersion is the highest version of a key in any table of sealed values, 0 when nothing is sealed.
func (s *Server) keyVersion(ctx context.Context) (int64, error) {
	inSecrets, err := s.secrets.KeyVersion(ctx)
	if err != nil {
		return 0, err
	}
	inSources, err := s.sources.KeyVersion(ctx)
	if err != nil {
		return 0, err
	}
	inSigning, err := s.proof.KeyVersion(ctx)
	return max(inSecrets, inSources, inSigning), err
}

// RotateKey seals everything that is sealed with the current master key. Until it has ended well the previous key is
// needed, too. Interrupted, it is called again: it begins anew, and what it had done by then is done once more.
func (s *Server) RotateKey(ctx context.Context, by secrets.Actor) (out adminwire.RotatedKey, err error) {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	latest, err := s.keyVersion(ctx)
	if err != nil {
		return out, err
	}
	version := latest + 1
	room, err := s.secrets.Rotate(ctx, by, version)
	if err != nil {
		return out, err
	}
	runs, err := s.engine.RotateRunKeys(ctx, s.keys)
	if err != nil {
		return out, err
	}
	sources, err := s.sources.Rotate(ctx, version)
	if err != nil {
		return out, err
	}
	signing, err := s.proof.Rotate(ctx, version)
	if err != nil {
		return out, err
	}
	s.keys.SetVersion(version)
	out = adminwire.RotatedKey{ReEncrypted: room.Secrets, ReEncryptedConfigs: sources.Done, SkippedConfigs: sources.Skipped,
		ReEncryptedRunKeys: runs.Done, SkippedRunKeys: runs.Skipped,
		ReEncryptedSecretOutputs: room.RunOutputs.Done, SkippedSecretOutputs: room.RunOutputs.Skipped,
		ReEncryptedSigningKeys: signing.Done, SkippedSigningKeys: signing.Skipped}
	s.log.Info("master key rotated", "version", version, "secrets", out.ReEncrypted, "sources", out.ReEncryptedConfigs,
		"skipped", out.Skipped())
	return out, nil
}
