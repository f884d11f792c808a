package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (35), versions 1 to 5: where partitions lie and how large they are.
//
// v2 added flexible versions, v3 a top-level error, v4 the size of the volume, v5 whether
// the directory is cordoned, which none is.
func (b *Broker) describeLogDirs(_ *call, req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = b.dir.path, -1, -1
	if usage, err := b.cfg.FS.GetDiskUsage(b.dir.path); err == nil {
		dir.TotalBytes, dir.UsableBytes = int64(usage.TotalBytes), int64(usage.AvailBytes)
	}
	asked := make(map[string]map[int32]bool, len(req.Topics))
	for _, t := range req.Topics {
		partitions := make(map[int32]bool, len(t.Partitions))
		for _, p := range t.Partitions {
			partitions[p] = true
		}
		asked[t.Topic] = partitions
	}
	for _, t := range b.topics.all() {
		if at := logDirTopic(t, asked[t.name], req.Topics == nil); len(at.Partitions) > 0 {
			dir.Topics = append(dir.Topics, at)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// logDirTopic describes the partitions of a topic that are asked for, or all.
func logDirTopic(t *topic, asked map[int32]bool, all bool) kmsg.DescribeLogDirsResponseDirTopic {
	at := kmsg.NewDescribeLogDirsResponseDirTopic()
	at.Topic = t.name
	for _, p := range t.partitions() {
		if !all && !asked[p.index] {
			continue
		}
		dp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		dp.Partition = p.index
		if log := p.log.Load(); log != nil {
			dp.Size = log.Size()
		}
		at.Partitions = append(at.Partitions, dp)
	}
	return at
}
