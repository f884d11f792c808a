package commitlog

// holesBelow is the offset below which offsets may be missing in a segment.
func (r *loader) holesBelow() int64 {
	if n := len(r.segments); r.epochsLost && n > 0 {
		return r.segments[n-1].base // what is sealed may have been cleaned
	}
	return r.state.holes
}

// findEpochs makes the leader-epoch history anew from the batches if the state file is
// lost, or knows less than they do.
func (r *loader) findEpochs() error {
	if !r.hasState && len(r.segments) > 0 {
		r.epochsLost = true
	}
	for _, h := range r.headers {
		if h.stats.lastEpoch > r.state.epochs.latest() {
			r.epochsLost = true
		}
	}
	if !r.epochsLost {
		return nil
	}
	r.unclean = true
	r.report.Rebuilt = append(r.report.Rebuilt, stateName)
	var history epochHistory
	for _, s := range r.segments {
		size, err := r.sizeOf(s)
		if err != nil {
			return err
		}
		if history, err = r.log.epochsOf(history, s, size); err != nil {
			return err
		}
	}
	if len(history) == 0 {
		history = newLogState().epochs
	}
	r.state.epochs = history
	return nil
}

// finish completes what the segments alone do not say.
func (r *loader) finish() error {
	end := r.state.start
	if n := len(r.segments); n > 0 {
		r.state.start = max(r.state.start, r.segments[0].base)
		end = r.segments[n-1].next.Load()
	}
	if err := r.finishProducers(); err != nil {
		return err
	}
	if end < r.state.start { // possible without fsync: nothing is left above the start
		r.drop(r.segments[len(r.segments)-1], end, 0, "it ends below the log start")
		if r.open {
			if err := r.seal(len(r.segments) - 1); err != nil {
				return err
			}
		}
		end = r.state.start
	}
	r.report.End = end
	return r.makeDurable()
}

func (r *loader) finishProducers() error {
	n := len(r.segments)
	if r.producers == nil || r.producersAt != n-1 {
		ps, err := r.log.producersBefore(r.segments, n)
		if err != nil {
			return err
		}
		r.producers = ps
	}
	r.producers.expire(r.nowMs, r.log.mu.config.ProducerIDExpirationMs, r.log.opts.MaxProducers)
	return nil
}

// makeDurable lets what was recovered be visible: it was read, maybe from memory only.
func (r *loader) makeDurable() error {
	n := len(r.segments)
	if r.synced || n == 0 || !r.log.opts.Fsync || r.segments[n-1].size.Load() == 0 {
		return nil
	}
	if err := r.log.syncSegment(r.segments[n-1]); err != nil {
		return err
	}
	r.synced = true
	return r.log.disk.syncDir()
}

// install makes the loaded state the log's.
func (l *Log) install(r *loader) {
	r.report.Unclean = r.report.Unclean || r.unclean || len(r.report.Dropped) > 0
	end := r.report.End
	st := &l.mu
	st.state = r.state
	st.epochNew = !r.hasState || r.epochsLost
	if r.report.Unclean {
		st.state.epochs = st.state.epochs.with(st.state.epochs.latest()+1, end)
		st.epochNew = true
	}
	st.state.suspectBase, st.state.suspectBytes = -1, 0
	st.producers = r.producers
	epochs := st.state.epochs // readers have no lock, so not a pointer into the state
	l.epochs.Store(&epochs)
	l.setSegments(r.segments)
	if n := len(r.segments); r.open {
		s := r.segments[n-1]
		st.active, st.createdMs = s, r.nowMs
		if h, ok := r.headers[s.base]; ok {
			st.flush.checkpointed = h.dataBytes
		}
	}
	st.durable = end
	if st.active != nil {
		st.durableBytes = st.active.size.Load()
		if !r.synced && st.durableBytes > 0 {
			st.durable, st.durableBytes = st.active.base, 0
		}
	}
	l.end.Store(end)
	l.high.Store(end)
	l.stable.Store(max(r.state.start, st.producers.txns.stable(end)))
	l.start.Store(r.state.start)
	l.recovery = r.report
}
