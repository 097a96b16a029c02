package wire

// ID is the id by which a server acknowledges an agent's frame or answers it, "" for one that it does neither with.
func ID(m Message) string {
	switch m := m.(type) {
	case JobAck:
		return m.MessageID
	case JobStatus:
		return m.MessageID
	case StepStatus:
		return m.MessageID
	case LogChunk:
		return m.MessageID
	case ConcurrencyReport:
		return m.MessageID
	case ApprovalRequest:
		return m.MessageID
	case CacheUploadRequest:
		return m.MessageID
	case CacheUploadComplete:
		return m.MessageID
	case UserCacheRestoreRequest:
		return m.MessageID
	case UserCacheSaveRequest:
		return m.MessageID
	case UserCacheSaveComplete:
		return m.MessageID
	case ProvenanceUploadRequest:
		return m.MessageID
	case ProvenanceUploadComplete:
		return m.MessageID
	case EventEmit:
		return m.RequestID
	case APIRequest:
		return m.RequestID
	case ArtifactUploadRequest:
		return m.MessageID
	case ArtifactCommitRequest:
		return m.MessageID
	}
	return ""
}
