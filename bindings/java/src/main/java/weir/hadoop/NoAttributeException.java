package weir.hadoop;

import java.io.IOException;

/** A file has no extended attribute of that name. */
public class NoAttributeException extends IOException {
  private static final long serialVersionUID = 1L;

  public NoAttributeException(String message) {
    super(message);
  }
}
