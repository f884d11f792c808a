package main

import "github.com/spf13/cobra"

// partitionFlags choose one partition.
type partitionFlags struct {
	topic     string
	partition int32
}

func (f *partitionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.topic, "topic", "t", "", "topic")
	cmd.Flags().Int32VarP(&f.partition, "partition", "p", 0, "partition")
}
