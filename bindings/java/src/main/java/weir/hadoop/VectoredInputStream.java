package weir.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;

/**
 * Reads of many ranges at once, of Hadoop 3.3.5 and later; nothing else refers to this class, so
 * that an older Hadoop does not load it. Small ranges go together: one request to each data server
 * that has any of them. Ranges may overlap, and are there when the call returns.
 */
final class VectoredInputStream extends WeirInputStream {
  /** Ranges of one call, as bindings/jni allows. */
  private static final int MAX_RANGES = 256;
  /** A longer range is a call of its own, straight into its buffer. */
  private static final int MAX_SHARED_BYTES = DirectBuffers.BYTES / 4;

  VectoredInputStream(long file, FileSystem.Statistics statistics) {
    super(file, statistics);
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
      throws IOException {
    checkOpen();
    long size = size();
    for (FileRange range : ranges) {
      if (range.getLength() < 0) {
        throw new IllegalArgumentException("a range of " + range.getLength() + " bytes");
      }
      boolean isBehind = range.getOffset() > size - range.getLength();
      if (range.getOffset() < 0 || isBehind) {
        throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY + ": " + range.getOffset()
            + " + " + range.getLength() + " of " + size + " bytes");
      }
    }
    List<FileRange> together = new ArrayList<>();
    int bytes = 0;
    for (FileRange range : ranges) {
      int length = range.getLength();
      if (length == 0 || length > MAX_SHARED_BYTES) {
        range.setData(alone(range, allocate));
        continue;
      }
      if (together.size() == MAX_RANGES || bytes + length > DirectBuffers.BYTES) {
        fetch(together, allocate);
        together.clear();
        bytes = 0;
      }
      together.add(range);
      bytes += length;
    }
    fetch(together, allocate);
  }

  private CompletableFuture<ByteBuffer> alone(FileRange range, IntFunction<ByteBuffer> allocate) {
    CompletableFuture<ByteBuffer> data = new CompletableFuture<>();
    try {
      ByteBuffer buffer = allocate.apply(range.getLength());
      readFully(range.getOffset(), buffer);
      buffer.flip();
      data.complete(buffer);
    } catch (IOException e) {
      data.completeExceptionally(e);
    }
    return data;
  }

  private void fetch(List<FileRange> ranges, IntFunction<ByteBuffer> allocate) {
    if (ranges.isEmpty()) {
      return;
    }
    long[] places = new long[2 * ranges.size()];
    for (int i = 0; i < ranges.size(); i++) {
      places[2 * i] = ranges.get(i).getOffset();
      places[2 * i + 1] = ranges.get(i).getLength();
    }
    ByteBuffer all = DirectBuffers.take();
    try {
      readRanges(places, all);
      for (FileRange range : ranges) {
        ByteBuffer buffer = allocate.apply(range.getLength());
        ByteBuffer part = all.duplicate();
        part.limit(part.position() + range.getLength());
        buffer.put(part);
        all.position(part.limit());
        buffer.flip();
        range.setData(CompletableFuture.completedFuture(buffer));
      }
    } catch (IOException e) {
      for (FileRange range : ranges) {
        CompletableFuture<ByteBuffer> data = new CompletableFuture<>();
        data.completeExceptionally(e);
        range.setData(data);
      }
    } finally {
      DirectBuffers.give(all);
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    return capability.toLowerCase(Locale.ROOT).equals("in:readvectored")
        || super.hasCapability(capability);
  }
}
